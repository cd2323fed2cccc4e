/* sluice model list|load|unload: the supervisor's engines, one at a time. */
#ifndef APP_CMD_MODEL_H
#define APP_CMD_MODEL_H

int cmd_model(int argc, char **argv);

#endif
