/* sluice migrate --config FILE | --conninfo TEXT */
#ifndef APP_CMD_MIGRATE_H
#define APP_CMD_MIGRATE_H

int cmd_migrate(int argc, char **argv);

#endif
