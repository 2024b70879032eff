// The hosts: network namespaces without names, each with one TUN device. They vanish with the processes that hold them.
#ifndef LAB_HOSTS_H
#define LAB_HOSTS_H

#include <stdint.h>

#define HOSTS 3
enum { CLIENT, STORE, FUNCTION };

// Where the supervisor holds host i's namespace: /proc/<supervisor>/fd/<FIRST_NAMESPACE + i>.
#define FIRST_NAMESPACE 40

// Return the address of a host, as on the wire: 10.77.0.1 the client (and .11, .12), .2 the store, .3 the function.
uint32_t host_address(int host);
// Return the host of an address.
int host_of(uint32_t address);
// Make a host: namespace, device, addresses, settings ("ipv4/tcp_rmem=4096 131072 33554432"). Return its TUN device.
int host_make(int host, char **settings, int n_settings);
// End all processes on the hosts, whoever started them.
void hosts_clear(void);
// Start a command on a host, in place of this process. With `inside` it ends with the supervisor.
int host_enter(int supervisor, int host, int inside, char **command);

#endif
