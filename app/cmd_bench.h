/* sluice bench: how fast this machine runs a model: prefill and decode tokens per second.
 * Exit codes: 0 done, 1 failed, 2 used wrongly. */
#ifndef APP_CMD_BENCH_H
#define APP_CMD_BENCH_H

int cmd_bench(int argc, char **argv);

#endif
