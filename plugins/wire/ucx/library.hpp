// library.hpp - UCX, loaded when the wire is opened and not with this library.
//
// UCX takes the process's handlers of SIGSEGV, SIGHUP and others when it is loaded, unless its
// environment forbids it. So the environment is set first.
#pragma once

#include <dlfcn.h>
#include <ucp/api/ucp.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace ucx_wire {

#define UCX_WIRE_FUNCTIONS(of)                                                                  \
    of(ucp_am_data_release) of(ucp_am_send_nbx) of(ucp_cleanup) of(ucp_config_modify)           \
        of(ucp_config_read) of(ucp_config_release) of(ucp_conn_request_query) of(ucp_ep_create) \
            of(ucp_ep_close_nbx) of(ucp_init_version) of(ucp_listener_create)                   \
                of(ucp_listener_destroy) of(ucp_listener_query) of(ucp_listener_reject)         \
                    of(ucp_request_check_status) of(ucp_request_free) of(ucp_worker_arm)        \
                        of(ucp_worker_create) of(ucp_worker_destroy) of(ucp_worker_get_efd)     \
                            of(ucp_worker_progress) of(ucp_worker_set_am_recv_handler)          \
                                of(ucs_status_string)

struct library {
#define UCX_WIRE_MEMBER(name) decltype(&::name) name = nullptr;
    UCX_WIRE_FUNCTIONS(UCX_WIRE_MEMBER)
#undef UCX_WIRE_MEMBER

    // Keeps the values that the environment already has. Throws std::runtime_error. UCX is never
    // unloaded, because it has threads of its own.
    explicit library(unsigned keepalive_ms) {
        const std::string beat = std::to_string(keepalive_ms) + "ms";
        ::setenv("UCX_HANDLE_ERRORS", "none", 0);
        ::setenv("UCX_DEBUG_SIGNO", "0", 0);
        ::setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 0);
        // UCX's keepalive notices the death of a peer. With this setting it includes shared memory.
        ::setenv("UCX_MM_ERROR_HANDLING", "y", 0);
        ::setenv("UCX_KEEPALIVE_INTERVAL", beat.c_str(), 0);
        ::setenv("UCX_TCP_CM_REUSEADDR", "y", 0);  // a node that comes back has its old address
        ::setenv("UCX_LOG_LEVEL", "fatal", 0);     // events report errors instead
        void *const handle = ::dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (!handle)
            throw std::runtime_error(std::string("ucx: ") + ::dlerror() + "; install libucx0");
#define UCX_WIRE_FIND(name)                                             \
    name = reinterpret_cast<decltype(&::name)>(::dlsym(handle, #name)); \
    if (!name)                                                          \
        throw std::runtime_error("ucx: libucp.so.0 lacks " #name "; 1.12 or newer is needed");
        UCX_WIRE_FUNCTIONS(UCX_WIRE_FIND)
#undef UCX_WIRE_FIND
    }
};

}  // namespace ucx_wire
