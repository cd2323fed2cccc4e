/* sluice usage: exports usage rows (CSV, JSON lines) or a summary, for the administrator.
 * Exit codes: 0 done, 1 failed, 2 used wrongly. */
#ifndef APP_CMD_USAGE_H
#define APP_CMD_USAGE_H

int cmd_usage(int argc, char **argv);

#endif
