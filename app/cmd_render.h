/* sluice render: messages through the model's own chat template, exactly as a request's prompt is
 * made. Exit codes: 0 done, 1 failed, 2 used wrongly. */
#ifndef APP_CMD_RENDER_H
#define APP_CMD_RENDER_H

int cmd_render(int argc, char **argv);

#endif
