/* Between supervisor.c and supervisor_signals.c only. */
#ifndef APP_SUPERVISE_SUPERVISOR_SIGNALS_H
#define APP_SUPERVISE_SUPERVISOR_SIGNALS_H

#include "app/supervise/supervisor.h"

/* Blocks what is handled and opens s->signal_fd for it. ST_IO. */
MUST_CHECK enum status supervisor_open_signals(struct supervisor *s, struct reason *why);
/* Does what came so far: another try, or a stop is noted. */
void supervisor_take_signals(struct supervisor *s, int64_t now_ms);

#endif
