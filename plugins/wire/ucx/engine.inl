// engine.inl - how an instance opens, what it sends, and how it handles what arrives.
#pragma once

namespace ucx_wire {

inline void engine::check(const moorage_wire_limits &limits) {
    const auto refuse = [](const char *what) {
        throw std::invalid_argument(std::string("limits: ") + what);
    };
    if (limits.size < sizeof(limits)) refuse("their size is less than that of moorage.wire/1");
    if (!limits.connections_max || !limits.handshakes_max || !limits.handshakes_per_s ||
        !limits.queue_messages_max || !limits.queue_bytes_max || !limits.connect_ns ||
        !limits.close_ns)
        refuse("each has to be at least 1");
    for (const uint64_t bytes : limits.message_bytes_max) {
        if (bytes < 1 || bytes > uint64_t{1} << 31) refuse("message_bytes_max is 1 to 2147483648");
        if (bytes > limits.receive_bytes_max)
            refuse("receive_bytes_max is less than message_bytes_max");
    }
}

inline engine::engine(const settings &set, const moorage_wire_limits &limits)
    : set_(set),
      limits_(limits),
      trusted_(set.trusted),
      ucx_(static_cast<unsigned>(std::max<uint64_t>(set.silence_ms / 4, 50))),
      beginnings_(limits) {
    check(limits);
    const auto must = [&](ucs_status_t done, const char *what) {
        if (done != UCS_OK)
            throw std::runtime_error(std::string("ucx: ") + what + ": " +
                                     ucx_.ucs_status_string(done));
    };
    ucp_config_t *config = nullptr;
    must(ucx_.ucp_config_read(nullptr, nullptr, &config), "its configuration");
    if (!set.transports.empty()) ucx_.ucp_config_modify(config, "TLS", set.transports.c_str());
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    const ucs_status_t begun =
        ucx_.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
    ucx_.ucp_config_release(config);
    must(begun, "ucp_init");
    ucp_worker_params_t of{};
    of.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT;
    of.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    of.am_alignment = 8;
    must(ucx_.ucp_worker_create(context_, &of, &worker_), "a worker");
    must(ucx_.ucp_worker_get_efd(worker_, &worker_socket_), "a descriptor to wait for");
    waker_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ucp_am_handler_param_t hear{};
    hear.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    hear.id = message_id;
    hear.flags = UCP_AM_FLAG_WHOLE_MSG;
    hear.cb = &engine::arrived;
    hear.arg = this;
    must(ucx_.ucp_worker_set_am_recv_handler(worker_, &hear), "a handler");
}

inline engine::~engine() {
    over_ = true;
    lent_.each([&](lent_message &one) {
        if (one.of_ucx) ucx_.ucp_am_data_release(worker_, one.of_ucx);
    });
    for (const caller &who : callers_)
        if (entry *at = entries_.find(who.listener))
            if (auto *open = std::get_if<std::unique_ptr<listener>>(at))
                ucx_.ucp_listener_reject((*open)->handle, who.request);
    entries_.each([&](entry &one) {
        if (auto *open = std::get_if<std::unique_ptr<listener>>(&one))
            ucx_.ucp_listener_destroy((*open)->handle);
    });
    std::vector<void *> closing;
    each([&](connection &one) {
        if (one.closing)
            closing.push_back(one.closing);
        else if (one.end_point && one.stands != connection::stand::dying) {
            ucp_request_param_t how{};
            how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
            how.flags = UCP_EP_CLOSE_FLAG_FORCE;
            void *const request = ucx_.ucp_ep_close_nbx(one.end_point, &how);
            if (UCS_PTR_IS_PTR(request)) closing.push_back(request);
        }
    });
    for (int i = 0; i < 10'000 && !closing.empty(); ++i) {
        ucx_.ucp_worker_progress(worker_);
        std::erase_if(closing, [this](void *one) {
            if (ucx_.ucp_request_check_status(one) == UCS_INPROGRESS) return false;
            ucx_.ucp_request_free(one);
            return true;
        });
    }
    if (worker_) ucx_.ucp_worker_destroy(worker_);
    if (context_) ucx_.ucp_cleanup(context_);
    if (waker_ >= 0) ::close(waker_);
}

inline uint64_t engine::listen(std::string_view text, std::string &bound) {
    const place at = read_place(text, /*port_may_be_0=*/true);
    if (!trusted_.hold(at.at))
        throw std::invalid_argument("address " + std::string(text) +
                                    " is in no network that trusted names (" + set_.trusted +
                                    "); ucx neither encrypts nor asks who calls");
    const uint64_t number = entries_.add({});
    auto made = std::make_unique<listener>();
    made->number = number, made->of = this;
    ucp_listener_params_t how{};
    how.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
    how.sockaddr = {at.address(), at.bytes};
    how.conn_handler = {&engine::called, made.get()};
    const ucs_status_t begun = ucx_.ucp_listener_create(worker_, &how, &made->handle);
    if (begun != UCS_OK) {
        entries_.remove(number);
        throw std::invalid_argument("cannot listen on " + std::string(text) + ": " +
                                    ucx_.ucs_status_string(begun));
    }
    ucp_listener_attr_t is{};
    is.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
    if (ucx_.ucp_listener_query(made->handle, &is) == UCS_OK) bound = text_of(is.sockaddr);
    *entries_.find(number) = std::move(made);
    return number;
}

inline connection &engine::add() {
    const uint64_t token = entries_.add(std::make_unique<connection>());
    connection &made = *find(token);
    made.token = token;
    ++connections_;
    return made;
}

inline uint64_t engine::connect(const moorage::wire_target &target) {
    if (target.channel != MOORAGE_WIRE_CALLS && target.channel != MOORAGE_WIRE_BULK)
        throw std::invalid_argument("channel " + std::to_string(target.channel) + " is unknown");
    if (!target.identity().empty())
        throw std::invalid_argument("identity " + std::string(target.identity()) +
                                    " cannot be proved: ucx knows no identities");
    std::vector<place> all;
    for (const char *text : target.addresses()) {
        all.push_back(read_place(text, /*port_may_be_0=*/false));
        if (!trusted_.hold(all.back().at))
            throw std::invalid_argument("address " + std::string(text) +
                                        " is in no network that trusted names (" + set_.trusted +
                                        ")");
    }
    if (all.empty()) throw std::invalid_argument("a target without addresses");
    if (connections_ >= limits_.connections_max)
        throw std::invalid_argument(std::to_string(limits_.connections_max) +
                                    " connections are there, the most it has");
    connection &made = add();
    made.dialed = true;
    made.channel = target.channel;
    std::ranges::reverse(all);
    made.more_places = std::move(all);
    made.due_ns = now_ns() + limits_.connect_ns;
    dial_next(made);
    return made.token;
}

// Tries the next address. Returns false if none is left, and ends the connection.
inline bool engine::dial_next(connection &at) {
    while (!at.more_places.empty()) {
        const place to = at.more_places.back();
        at.more_places.pop_back();
        ucp_ep_params_t how{};
        how.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                         UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
        how.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
        how.sockaddr = {to.address(), to.bytes};
        how.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        how.err_handler = {&engine::failed, this};
        at.address = text_of(to.at);
        if (ucx_.ucp_ep_create(worker_, &how, &at.end_point) != UCS_OK) continue;
        say(at, frame::hello, at.token);
        return true;
    }
    at.end_point = nullptr;
    end(at, MOORAGE_WIRE_UNREACHABLE, at.address + ": nobody answers");
    return false;
}

// Callbacks --------------------------------------------------------------------------------------

inline void engine::called(ucp_conn_request_h request, void *self) {
    const auto *const at = static_cast<const listener *>(self);
    ucp_conn_request_attr_t who{};
    who.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR;
    const bool known = at->of->ucx_.ucp_conn_request_query(request, &who) == UCS_OK;
    at->of->callers_.push_back({at->number, request, known ? text_of(who.client_address) : "",
                                known && at->of->trusted_.hold(who.client_address)});
}

inline void engine::failed(void *self, ucp_ep_h end_point, ucs_status_t why) {
    engine &at = *static_cast<engine *>(self);
    at.failures_.emplace_back(end_point, at.ucx_.ucs_status_string(why));
}

inline ucs_status_t engine::arrived(void *self, const void *header, size_t header_bytes, void *data,
                                    size_t bytes, const ucp_am_recv_param_t *how) {
    engine &at = *static_cast<engine *>(self);
    head said;
    // Bytes of another protocol look like an end that is gone, so they get no answer.
    if (at.over_ || !read_head(header, header_bytes, said)) return UCS_OK;
    const bool long_one = (how->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    if (said.kind == frame::hello || said.kind == frame::welcome) {
        const bool answers = (how->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0;
        at.greetings_.push_back({said, answers ? how->reply_ep : nullptr});
        return UCS_OK;
    }
    connection *const to = at.find(said.to);
    if (!to || to->peer == 0) return UCS_OK;
    switch (said.kind) {
        case frame::grant:
            to->granted_all += said.value;
            return UCS_OK;
        case frame::goodbye:
            to->goodbye_place = said.value;
            return UCS_OK;
        default:
            break;
    }
    bool keeps = false;
    if (long_one)
        at.failures_.emplace_back(to->end_point, "it sends in a way that was not agreed");
    else if (to->stands == connection::stand::open)
        at.take_data(*to, said, data, bytes, keeps);
    return keeps && (how->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0 ? UCS_INPROGRESS : UCS_OK;
}

inline void engine::take_data(connection &at, const head &said, void *data, size_t bytes,
                              bool &keeps) {
    const uint64_t cost = bytes + message_cost;
    const bool fits = bytes >= 1 && bytes <= limits_.message_bytes_max[at.channel] &&
                      at.held_bytes + cost <= window_of(at.channel) &&
                      said.value >= at.awaited_place && !at.early.contains(said.value);
    if (!fits)
        return failures_.emplace_back(at.end_point, "it sends more than was granted"), void();
    lent_message one;
    one.bytes = bytes;
    one.connection = at.token;
    // Copied: UCX's memory could stay in use only if it is well aligned and UCX can spare it,
    // which it cannot for small messages.
    one.copy = std::make_unique_for_overwrite<uint64_t[]>((bytes + 7) / 8);
    std::memcpy(one.copy.get(), data, bytes);
    one.data = one.copy.get();
    keeps = false;
    at.held_bytes += cost;
    tell_in_order(at, said.value, lent_.add(std::move(one)));
}

inline void engine::tell_in_order(connection &at, uint64_t place, uint64_t message) {
    at.early.emplace(place, message);
    while (!at.early.empty() && at.early.begin()->first == at.awaited_place) {
        const uint64_t next = at.early.begin()->second;
        at.early.erase(at.early.begin());
        ++at.awaited_place;
        const lent_message &one = *lent_.find(next);
        told made{};
        made.event.kind = MOORAGE_WIRE_MESSAGE;
        made.event.connection = at.token;
        made.event.message = next;
        made.event.plugin_data = one.data;
        made.event.bytes = one.bytes;
        events_.push_back(std::move(made));
    }
}

inline void engine::sent(void *request, ucs_status_t, void *of) {
    const std::unique_ptr<sending> what(static_cast<sending *>(of));
    what->of->ucx_.ucp_request_free(request);
    if (!what->of->over_) what->of->done(*what);
}

inline void engine::done(const sending &what) {
    connection *const at = find(what.connection);
    if (!at) return;
    --at->under_way;
    if (!what.of_host) return;
    at->queued_bytes -= what.bytes;
    --at->queued_messages;
    told made{};
    made.event.kind = MOORAGE_WIRE_SENT;
    made.event.connection = at->token;
    made.event.user = what.user;
    if (at->stands != connection::stand::dying) events_.push_back(std::move(made));
}

// Sending ----------------------------------------------------------------------------------------

inline uint32_t engine::hand_over(connection &at, std::unique_ptr<sending> what, bool reply) {
    ucp_request_param_t how{};
    how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK |
                       UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_DATATYPE;
    how.flags = UCP_AM_SEND_FLAG_EAGER | (reply ? UCP_AM_SEND_FLAG_REPLY : 0);
    how.cb.send = &engine::sent;
    how.user_data = what.get();
    const bool list = what->parts.size() > 1, empty = what->parts.empty();
    how.datatype = list ? static_cast<ucp_datatype_t>(UCP_DATATYPE_IOV) : ucp_dt_make_contig(1);
    const void *const data = list    ? static_cast<const void *>(what->parts.data())
                             : empty ? nullptr
                                     : what->parts[0].buffer;
    const size_t count = list ? what->parts.size() : empty ? 0 : what->parts[0].length;
    void *const request = ucx_.ucp_am_send_nbx(at.end_point, message_id, &what->said, sizeof(head),
                                               data, count, &how);
    if (request == nullptr) return MOORAGE_WIRE_DONE;
    if (UCS_PTR_IS_ERR(request)) {
        failures_.emplace_back(at.end_point, ucx_.ucs_status_string(UCS_PTR_STATUS(request)));
        return MOORAGE_WIRE_DONE;  // the other end reads no more
    }
    ++at.under_way;
    (void)what.release();  // sent() takes it back
    return MOORAGE_WIRE_TAKEN;
}

inline void engine::say(connection &at, frame kind, uint64_t value) {
    auto what = std::make_unique<sending>();
    what->of = this;
    what->connection = at.token;
    what->said.kind = kind;
    what->said.to = at.peer;
    what->said.value = value;
    what->said.channel = static_cast<uint32_t>(at.channel);
    what->said.message_bytes_max = limits_.message_bytes_max[at.channel];
    what->said.held_bytes_max = limits_.receive_bytes_max;
    hand_over(at, std::move(what), kind == frame::hello);
}

// Sends the message if the window has room for it. Returns whether it did.
inline bool engine::give(connection &at, waiting_message &what) {
    const uint64_t cost = what.bytes + message_cost;
    if (cost > at.window) return false;
    at.window -= cost;
    auto made = std::make_unique<sending>();
    made->of = this;
    made->connection = at.token;
    made->user = what.user;
    made->bytes = what.bytes;
    made->of_host = true;
    made->said.to = at.peer;
    made->said.value = at.next_place++;
    made->parts = std::move(what.parts);
    if (hand_over(at, std::move(made), false) == MOORAGE_WIRE_TAKEN) return true;
    at.queued_bytes -= what.bytes;
    --at.queued_messages;
    told news{};
    news.event.kind = MOORAGE_WIRE_SENT;
    news.event.connection = at.token;
    news.event.user = what.user;
    events_.push_back(std::move(news));
    return true;
}

inline uint32_t engine::send(uint64_t to, std::span<const moorage_wire_part> parts, uint64_t user,
                             std::string &refused) {
    connection *const at = find(to);
    if (!at || at->stands != connection::stand::open || at->goodbye_place != MOORAGE_NEVER)
        return MOORAGE_WIRE_GONE;
    uint64_t bytes = 0;
    bool much = parts.size() > MOORAGE_WIRE_PARTS_MAX;
    for (const moorage_wire_part &part : parts) {
        if (part.bytes > at->send_bytes_max - std::min(bytes, at->send_bytes_max)) much = true;
        bytes += much ? 0 : part.bytes;
    }
    if (much || bytes == 0) {
        refused = much ? "more than " + std::to_string(MOORAGE_WIRE_PARTS_MAX) + " parts or " +
                             std::to_string(at->send_bytes_max) + " bytes"
                       : "a message without bytes";
        return MOORAGE_WIRE_REFUSED;
    }
    const bool room =
        at->queued_messages < limits_.queue_messages_max &&
        (at->queued_bytes == 0 || at->queued_bytes + bytes <= limits_.queue_bytes_max);
    if (!room || at->full) {
        at->full = true;
        return MOORAGE_WIRE_FULL;
    }
    waiting_message what;
    what.bytes = bytes;
    what.user = user;
    for (const moorage_wire_part &part : parts)
        if (part.bytes != 0) what.parts.push_back({const_cast<void *>(part.host_data), part.bytes});
    at->queued_bytes += bytes;
    ++at->queued_messages;
    if (!at->waiting.empty() || !give(*at, what)) at->waiting.push_back(std::move(what));
    return MOORAGE_WIRE_TAKEN;
}

inline void engine::send_waiting(connection &at) {
    at.window += std::exchange(at.granted_all, 0);
    while (!at.waiting.empty() && give(at, at.waiting.front())) at.waiting.pop_front();
    if (!at.full || 2 * at.queued_bytes > limits_.queue_bytes_max ||
        2 * at.queued_messages > limits_.queue_messages_max)
        return;
    at.full = false;
    told made{};
    made.event.kind = MOORAGE_WIRE_WRITABLE;
    made.event.connection = at.token;
    events_.push_back(std::move(made));
}

inline void engine::release(uint64_t message) {
    lent_message *const one = lent_.find(message);
    if (!one) return;
    if (one->of_ucx) ucx_.ucp_am_data_release(worker_, one->of_ucx);
    if (connection *const from = find(one->connection)) {
        from->held_bytes -= one->bytes + message_cost;
        from->owed_bytes += one->bytes + message_cost;
        if (from->stands == connection::stand::open && from->owed_bytes > owed_max(from->channel))
            grant(*from);
    }
    lent_.remove(message);
}

inline void engine::grant(connection &at) {
    say(at, frame::grant, std::exchange(at.owed_bytes, 0));
}

// Beginnings -------------------------------------------------------------------------------------

inline void engine::accept(const caller &who) {
    entry *const at = entries_.find(who.listener);
    auto *const open = at ? std::get_if<std::unique_ptr<listener>>(at) : nullptr;
    if (!open) return;  // its requests ended with it
    const std::string why = who.trusted
                                ? beginnings_.refuses(connections_ - handshakes_, handshakes_)
                                : "it is in no network that trusted names";
    if (!why.empty()) {
        ucx_.ucp_listener_reject((*open)->handle, who.request);
        return turn_away(who.listener, who.trusted ? MOORAGE_WIRE_TOO_MANY : MOORAGE_WIRE_STRANGER,
                         who.address, why);
    }
    ucp_ep_params_t how{};
    how.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                     UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    how.conn_request = who.request;
    how.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    how.err_handler = {&engine::failed, this};
    connection &made = add();
    made.stands = connection::stand::greeting;
    made.listener = who.listener;
    made.address = who.address;
    made.due_ns = now_ns() + limits_.connect_ns;
    ++handshakes_;
    if (ucx_.ucp_ep_create(worker_, &how, &made.end_point) == UCS_OK) return;
    made.end_point = nullptr;
    end(made, MOORAGE_WIRE_LOST, "it went before it was answered");
}

inline void engine::greet(const greeting &by) {
    connection *at = by.said.kind == frame::welcome ? find(by.said.to) : nullptr;
    if (by.said.kind == frame::hello)
        each([&](connection &one) {
            if (one.end_point == by.from && one.stands == connection::stand::greeting) at = &one;
        });
    const bool wanted =
        at && at->stands == (by.said.kind == frame::hello ? connection::stand::greeting
                                                          : connection::stand::dialing);
    if (!wanted) return;
    const bool sound = by.said.channel < MOORAGE_WIRE_CHANNELS && by.said.value != 0 &&
                       by.said.message_bytes_max != 0 &&
                       by.said.held_bytes_max >= by.said.message_bytes_max &&
                       by.said.held_bytes_max < uint64_t{1} << 40;
    if (!sound) return end(*at, MOORAGE_WIRE_MALFORMED, "a greeting with numbers that cannot be");
    if (by.said.kind == frame::hello) {
        at->channel = static_cast<int32_t>(by.said.channel);
        --handshakes_;
    }
    at->peer = by.said.value;
    at->window = std::max(by.said.held_bytes_max, by.said.message_bytes_max + message_cost);
    at->send_bytes_max =
        std::min(by.said.message_bytes_max, limits_.message_bytes_max[at->channel]);
    at->stands = connection::stand::open;
    at->due_ns = MOORAGE_NEVER;
    if (by.said.kind == frame::hello) say(*at, frame::welcome, at->token);
    tell_open(*at);
}

inline void engine::tell_open(connection &at) {
    at.listed = true;
    told made{};
    made.event.kind = at.dialed ? MOORAGE_WIRE_CONNECTED : MOORAGE_WIRE_ACCEPTED;
    made.event.channel = at.channel;
    made.event.connection = at.token;
    made.event.listener = at.listener;
    made.event.bytes = at.send_bytes_max;
    made.address = at.address;
    events_.push_back(std::move(made));
}

inline void engine::turn_away(uint64_t listener, int32_t reason, const std::string &address,
                              const std::string &words) {
    for (told &one : events_)
        if (one.event.kind == MOORAGE_WIRE_TURNED_AWAY && one.event.reason == reason &&
            one.event.connection == listener) {
            ++one.event.count;
            return;
        }
    told made{};
    made.event.kind = MOORAGE_WIRE_TURNED_AWAY;
    made.event.reason = reason;
    made.event.connection = listener;
    made.event.count = 1;
    made.address = address;
    made.words = words;
    events_.push_back(std::move(made));
}

}  // namespace ucx_wire
