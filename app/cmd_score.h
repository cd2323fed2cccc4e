/* sluice score: teacher-forced log-probability of every token of a text, with the five likeliest
 * tokens beside it.
 * Exit codes: 0 done, 1 failed, 2 used wrongly. */
#ifndef APP_CMD_SCORE_H
#define APP_CMD_SCORE_H

int cmd_score(int argc, char **argv);

#endif
