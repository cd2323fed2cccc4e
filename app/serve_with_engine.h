/* sluice serve --with-engine: the gateway and every model's engine as supervised children, against
 * a PostgreSQL and a Redis of one's own. One that dies is started again and the others stay. */
#ifndef APP_SERVE_WITH_ENGINE_H
#define APP_SERVE_WITH_ENGINE_H

/* Until it is told to stop; the command's exit code. */
int serve_with_engine(const char *config_path);

#endif
