/* sluice serve --config FILE: the gateway, until SIGTERM or SIGINT. */
#ifndef APP_CMD_SERVE_H
#define APP_CMD_SERVE_H

int cmd_serve(int argc, char **argv);

#endif
