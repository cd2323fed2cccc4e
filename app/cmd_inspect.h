/* sluice inspect P: what a model file holds, or why it is refused.
 * Exit codes: 0 done, 1 failed, 2 used wrongly. */
#ifndef APP_CMD_INSPECT_H
#define APP_CMD_INSPECT_H

int cmd_inspect(int argc, char **argv);

#endif
