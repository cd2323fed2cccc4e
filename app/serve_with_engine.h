/* sluice serve --with-engine: engine and gateway as two supervised children, against a PostgreSQL
 * and a Redis of one's own. A gateway that dies is started again and the engine stays. */
#ifndef APP_SERVE_WITH_ENGINE_H
#define APP_SERVE_WITH_ENGINE_H

/* Until it is told to stop; the command's exit code. */
int serve_with_engine(const char *config_path);

#endif
