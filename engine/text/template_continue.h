/* continue_final_message, the way Hugging Face's apply_chat_template does it: a tag follows the
 * last message's text into the template, and what was rendered ends where the tag came out. So the
 * model goes on writing that message. Part of template_render; failures are sticky in struct jinja.
 */
#ifndef ENGINE_TEXT_TEMPLATE_CONTINUE_H
#define ENGINE_TEXT_TEMPLATE_CONTINUE_H

#include "engine/text/jinja_run.h"

/* Puts the tag after the content of the last of `messages` (after its last part that has a text),
 * and returns the text without it. */
const struct jstr *template_tag_last(struct jinja *j, struct jval messages);
/* `rendered` up to the tag. Fails where the tag or `text` (but for white space around it) did not
 * come through the template. */
const struct jstr *template_cut_at_tag(struct jinja *j, const struct jstr *rendered,
                                       const struct jstr *text);

#endif
