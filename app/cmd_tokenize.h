/* sluice tokenize: the ids of a text, as the engine's tokenizer gives them.
 * Exit codes: 0 done, 1 failed, 2 used wrongly. */
#ifndef APP_CMD_TOKENIZE_H
#define APP_CMD_TOKENIZE_H

int cmd_tokenize(int argc, char **argv);

#endif
