/* sluice status: is the engine at work, and the gateway ready? Asks both, changes nothing. */
#ifndef APP_CMD_STATUS_H
#define APP_CMD_STATUS_H

int cmd_status(int argc, char **argv);

#endif
