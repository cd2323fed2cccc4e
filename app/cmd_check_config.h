/* sluice check-config FILE | --keys */
#ifndef APP_CMD_CHECK_CONFIG_H
#define APP_CMD_CHECK_CONFIG_H

int cmd_check_config(int argc, char **argv);

#endif
