/* sluice generate: continues a prompt on a device of this process, without a server.
 * Exit codes: 0 done, 1 failed, 2 used wrongly. */
#ifndef APP_CMD_GENERATE_H
#define APP_CMD_GENERATE_H

int cmd_generate(int argc, char **argv);

#endif
