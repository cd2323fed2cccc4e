/* sluice engine: one model on one device, served to the gateway on a Unix socket, until SIGTERM or
 * SIGINT. Exit codes: 0 done, 1 failed, 2 used wrongly, 3 its monitor said that it isn't needed. */
#ifndef APP_CMD_ENGINE_H
#define APP_CMD_ENGINE_H

#define ENGINE_EXIT_IDLE 3

int cmd_engine(int argc, char **argv);

#endif
