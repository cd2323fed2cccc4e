/* sluice up --dir DIR: everything on one machine, under one folder. A private PostgreSQL and a
 * private Redis on Unix sockets, the engine and the gateway, restarted when they die, stopped
 * together. */
#ifndef APP_UP_UP_H
#define APP_UP_UP_H

int cmd_up(int argc, char **argv);

#endif
