#include "billing/write_list.h"

#include "base/size.h"

void write_list_init(struct write_list *l)
{
    l->head = NULL;
    l->tail = &l->head;
}

void write_list_add(struct write_list *l, struct billing_write *w)
{
    w->next = NULL;
    *l->tail = w;
    l->tail = &w->next;
}

static void on_write_done(struct loop_message *m)
{
    struct billing_write *w = CONTAINER_OF(m, struct billing_write, message);

    w->on_done(w);
}

void write_answer(struct billing_write *w, enum status s)
{
    w->status = s;
    w->message.on_message = on_write_done;
    loop_post(w->loop, &w->message);
}
