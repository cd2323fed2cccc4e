/* Finds clients that left while their request waits or computes.
 *
 * H2O 2.2.5 reads nothing from an HTTP/1.1 connection while a request is handled, so a close is
 * unseen there: the descriptors are polled for POLLRDHUP. A client that only closes its sending
 * side counts as gone. (On HTTP/2 H2O reads on and frees the request.) */
#ifndef API_DISCONNECT_H
#define API_DISCONNECT_H

struct api_loop;

/* One poll(2) over all waiting HTTP/1.1 requests of the loop; drops those whose client left. */
void disconnect_poll(struct api_loop *l);

#endif
