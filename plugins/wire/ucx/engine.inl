// engine.inl - how an instance opens, what it sends, and how it handles what arrives.
#pragma once

namespace ucx_wire {

inline void engine::check(const moorage_wire_limits &limits) {
    const auto refuse = [](const char *problem) {
        throw std::invalid_argument(std::string("limits: ") + problem);
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
    : settings_(set),
      limits_(limits),
      trusted_(set.trusted),
      ucx_(static_cast<unsigned>(std::max<uint64_t>(set.silence_ms / 4, 50))),
      handshake_limits_(limits) {
    check(limits);
    const auto require = [&](ucs_status_t done, const char *action) {
        if (done != UCS_OK)
            throw std::runtime_error(std::string("ucx: ") + action + ": " +
                                     ucx_.ucs_status_string(done));
    };
    ucp_config_t *config = nullptr;
    require(ucx_.ucp_config_read(nullptr, nullptr, &config), "its configuration");
    if (!set.transports.empty()) ucx_.ucp_config_modify(config, "TLS", set.transports.c_str());
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    const ucs_status_t begun =
        ucx_.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
    ucx_.ucp_config_release(config);
    require(begun, "ucp_init");
    ucp_worker_params_t worker_params{};
    worker_params.field_mask =
        UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT;
    worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    worker_params.am_alignment = 8;
    require(ucx_.ucp_worker_create(context_, &worker_params, &worker_), "a worker");
    require(ucx_.ucp_worker_get_efd(worker_, &worker_socket_), "a descriptor to wait for");
    waker_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ucp_am_handler_param_t handler_params{};
    handler_params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                                UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler_params.id = message_id;
    handler_params.flags = UCP_AM_FLAG_WHOLE_MSG;
    handler_params.cb = &engine::arrived;
    handler_params.arg = this;
    require(ucx_.ucp_worker_set_am_recv_handler(worker_, &handler_params), "a handler");
}

inline engine::~engine() {
    destroying_ = true;
    lent_.for_each([&](lent_message &message) {
        if (message.ucx_data) ucx_.ucp_am_data_release(worker_, message.ucx_data);
    });
    for (const caller &caller : callers_)
        if (entry *found = entries_.find(caller.listener))
            if (auto *open = std::get_if<std::unique_ptr<listener>>(found))
                ucx_.ucp_listener_reject((*open)->handle, caller.request);
    entries_.for_each([&](entry &slot) {
        if (auto *open = std::get_if<std::unique_ptr<listener>>(&slot))
            ucx_.ucp_listener_destroy((*open)->handle);
    });
    std::vector<void *> closing;
    for_each_connection([&](connection &peer) {
        if (peer.closing)
            closing.push_back(peer.closing);
        else if (peer.end_point && peer.state != connection::connection_state::dying) {
            ucp_request_param_t params{};
            params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
            params.flags = UCP_EP_CLOSE_FLAG_FORCE;
            void *const request = ucx_.ucp_ep_close_nbx(peer.end_point, &params);
            if (UCS_PTR_IS_PTR(request)) closing.push_back(request);
        }
    });
    for (int i = 0; i < 10'000 && !closing.empty(); ++i) {
        ucx_.ucp_worker_progress(worker_);
        std::erase_if(closing, [this](void *pending) {
            if (ucx_.ucp_request_check_status(pending) == UCS_INPROGRESS) return false;
            ucx_.ucp_request_free(pending);
            return true;
        });
    }
    if (worker_) ucx_.ucp_worker_destroy(worker_);
    if (context_) ucx_.ucp_cleanup(context_);
    if (waker_ >= 0) ::close(waker_);
}

inline uint64_t engine::listen(std::string_view text, std::string &bound) {
    const place place = read_place(text, /*port_may_be_0=*/true);
    if (!trusted_.contains(place.storage))
        throw std::invalid_argument("address " + std::string(text) +
                                    " is in no network that trusted names (" + settings_.trusted +
                                    "); ucx neither encrypts nor asks who calls");
    const uint64_t number = entries_.add({});
    auto new_listener = std::make_unique<listener>();
    new_listener->number = number, new_listener->owner = this;
    ucp_listener_params_t params{};
    params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
    params.sockaddr = {place.address(), place.bytes};
    params.conn_handler = {&engine::called, new_listener.get()};
    const ucs_status_t begun = ucx_.ucp_listener_create(worker_, &params, &new_listener->handle);
    if (begun != UCS_OK) {
        entries_.remove(number);
        throw std::invalid_argument("cannot listen on " + std::string(text) + ": " +
                                    ucx_.ucs_status_string(begun));
    }
    ucp_listener_attr_t attributes{};
    attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
    if (ucx_.ucp_listener_query(new_listener->handle, &attributes) == UCS_OK)
        bound = text_of(attributes.sockaddr);
    *entries_.find(number) = std::move(new_listener);
    return number;
}

inline connection &engine::add() {
    const uint64_t token = entries_.add(std::make_unique<connection>());
    connection &added = *find(token);
    added.token = token;
    ++connections_;
    return added;
}

inline uint64_t engine::connect(const moorage::wire_target &target) {
    if (target.channel != MOORAGE_WIRE_CALLS && target.channel != MOORAGE_WIRE_BULK)
        throw std::invalid_argument("channel " + std::to_string(target.channel) + " is unknown");
    if (!target.identity().empty())
        throw std::invalid_argument("identity " + std::string(target.identity()) +
                                    " cannot be proved: ucx knows no identities");
    std::vector<place> places;
    for (const char *text : target.addresses()) {
        places.push_back(read_place(text, /*port_may_be_0=*/false));
        if (!trusted_.contains(places.back().storage))
            throw std::invalid_argument("address " + std::string(text) +
                                        " is in no network that trusted names (" +
                                        settings_.trusted + ")");
    }
    if (places.empty()) throw std::invalid_argument("a target without addresses");
    if (connections_ >= limits_.connections_max)
        throw std::invalid_argument(std::to_string(limits_.connections_max) +
                                    " connections are there, the most it has");
    connection &peer = add();
    peer.dialed = true;
    peer.channel = target.channel;
    std::ranges::reverse(places);
    peer.more_places = std::move(places);
    peer.deadline_ns = now_ns() + limits_.connect_ns;
    dial_next(peer);
    return peer.token;
}

// Tries the next address. Returns false if none is left, and ends the connection.
inline bool engine::dial_next(connection &peer) {
    while (!peer.more_places.empty()) {
        const place target = peer.more_places.back();
        peer.more_places.pop_back();
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                            UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
        params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
        params.sockaddr = {target.address(), target.bytes};
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler = {&engine::failed, this};
        peer.address = text_of(target.storage);
        if (ucx_.ucp_ep_create(worker_, &params, &peer.end_point) != UCS_OK) continue;
        say(peer, frame::hello, peer.token);
        return true;
    }
    peer.end_point = nullptr;
    end(peer, MOORAGE_WIRE_UNREACHABLE, peer.address + ": nobody answers");
    return false;
}

// Callbacks --------------------------------------------------------------------------------------

inline void engine::called(ucp_conn_request_h request, void *self) {
    const auto *const listening = static_cast<const listener *>(self);
    ucp_conn_request_attr_t attributes{};
    attributes.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR;
    const bool known =
        listening->owner->ucx_.ucp_conn_request_query(request, &attributes) == UCS_OK;
    listening->owner->callers_.push_back(
        {listening->number, request, known ? text_of(attributes.client_address) : "",
         known && listening->owner->trusted_.contains(attributes.client_address)});
}

inline void engine::failed(void *self, ucp_ep_h end_point, ucs_status_t status) {
    engine &owner = *static_cast<engine *>(self);
    owner.failures_.emplace_back(end_point, owner.ucx_.ucs_status_string(status));
}

inline ucs_status_t engine::arrived(void *self, const void *header, size_t header_bytes, void *data,
                                    size_t bytes, const ucp_am_recv_param_t *params) {
    engine &owner = *static_cast<engine *>(self);
    head said;
    // Bytes of another protocol look like an end that is gone, so they get no answer.
    if (owner.destroying_ || !read_head(header, header_bytes, said)) return UCS_OK;
    const bool rendezvous = (params->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    if (said.kind == frame::hello || said.kind == frame::welcome) {
        const bool answers = (params->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0;
        owner.greetings_.push_back({said, answers ? params->reply_ep : nullptr});
        return UCS_OK;
    }
    connection *const peer = owner.find(said.receiver);
    if (!peer || peer->peer_token == 0) return UCS_OK;
    switch (said.kind) {
        case frame::grant:
            peer->granted_all += said.value;
            return UCS_OK;
        case frame::goodbye:
            peer->goodbye_place = said.value;
            return UCS_OK;
        default:
            break;
    }
    bool keeps = false;
    if (rendezvous)
        owner.failures_.emplace_back(peer->end_point, "it sends in a way that was not agreed");
    else if (peer->state == connection::connection_state::open)
        owner.take_data(*peer, said, data, bytes, keeps);
    return keeps && (params->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0 ? UCS_INPROGRESS : UCS_OK;
}

inline void engine::take_data(connection &peer, const head &said, void *data, size_t bytes,
                              bool &keeps) {
    const uint64_t cost = bytes + message_cost;
    const bool fits = bytes >= 1 && bytes <= limits_.message_bytes_max[peer.channel] &&
                      peer.held_bytes + cost <= window_of(peer.channel) &&
                      said.value >= peer.awaited_place && !peer.early.contains(said.value);
    if (!fits)
        return failures_.emplace_back(peer.end_point, "it sends more than was granted"), void();
    lent_message message;
    message.bytes = bytes;
    message.connection = peer.token;
    // Copied: UCX's memory could stay in use only if it is well aligned and UCX can spare it,
    // which it cannot for small messages.
    message.copy = std::make_unique_for_overwrite<uint64_t[]>((bytes + 7) / 8);
    std::memcpy(message.copy.get(), data, bytes);
    message.data = message.copy.get();
    keeps = false;
    peer.held_bytes += cost;
    tell_in_order(peer, said.value, lent_.add(std::move(message)));
}

inline void engine::tell_in_order(connection &peer, uint64_t place, uint64_t message) {
    peer.early.emplace(place, message);
    while (!peer.early.empty() && peer.early.begin()->first == peer.awaited_place) {
        const uint64_t next = peer.early.begin()->second;
        peer.early.erase(peer.early.begin());
        ++peer.awaited_place;
        const lent_message &lent = *lent_.find(next);
        reported_event report{};
        report.event.kind = MOORAGE_WIRE_MESSAGE;
        report.event.connection = peer.token;
        report.event.message = next;
        report.event.plugin_data = lent.data;
        report.event.bytes = lent.bytes;
        events_.push_back(std::move(report));
    }
}

inline void engine::sent(void *request, ucs_status_t, void *user_data) {
    const std::unique_ptr<outgoing_message> outgoing(static_cast<outgoing_message *>(user_data));
    outgoing->owner->ucx_.ucp_request_free(request);
    if (!outgoing->owner->destroying_) outgoing->owner->done(*outgoing);
}

inline void engine::done(const outgoing_message &outgoing) {
    connection *const peer = find(outgoing.connection);
    if (!peer) return;
    --peer->under_way;
    if (!outgoing.from_host) return;
    peer->queued_bytes -= outgoing.bytes;
    --peer->queued_messages;
    reported_event report{};
    report.event.kind = MOORAGE_WIRE_SENT;
    report.event.connection = peer->token;
    report.event.user = outgoing.user;
    if (peer->state != connection::connection_state::dying) events_.push_back(std::move(report));
}

// Sending ----------------------------------------------------------------------------------------

inline uint32_t engine::hand_over(connection &peer, std::unique_ptr<outgoing_message> outgoing,
                                  bool reply) {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK |
                          UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_DATATYPE;
    params.flags = UCP_AM_SEND_FLAG_EAGER | (reply ? UCP_AM_SEND_FLAG_REPLY : 0);
    params.cb.send = &engine::sent;
    params.user_data = outgoing.get();
    const bool list = outgoing->parts.size() > 1, empty = outgoing->parts.empty();
    params.datatype = list ? static_cast<ucp_datatype_t>(UCP_DATATYPE_IOV) : ucp_dt_make_contig(1);
    const void *const data = list    ? static_cast<const void *>(outgoing->parts.data())
                             : empty ? nullptr
                                     : outgoing->parts[0].buffer;
    const size_t count = list ? outgoing->parts.size() : empty ? 0 : outgoing->parts[0].length;
    void *const request = ucx_.ucp_am_send_nbx(peer.end_point, message_id, &outgoing->said,
                                               sizeof(head), data, count, &params);
    if (request == nullptr) return MOORAGE_WIRE_DONE;
    if (UCS_PTR_IS_ERR(request)) {
        failures_.emplace_back(peer.end_point, ucx_.ucs_status_string(UCS_PTR_STATUS(request)));
        return MOORAGE_WIRE_DONE;  // the other end reads no more
    }
    ++peer.under_way;
    (void)outgoing.release();  // sent() takes it back
    return MOORAGE_WIRE_TAKEN;
}

inline void engine::say(connection &peer, frame kind, uint64_t value) {
    auto outgoing = std::make_unique<outgoing_message>();
    outgoing->owner = this;
    outgoing->connection = peer.token;
    outgoing->said.kind = kind;
    outgoing->said.receiver = peer.peer_token;
    outgoing->said.value = value;
    outgoing->said.channel = static_cast<uint32_t>(peer.channel);
    outgoing->said.message_bytes_max = limits_.message_bytes_max[peer.channel];
    outgoing->said.held_bytes_max = limits_.receive_bytes_max;
    hand_over(peer, std::move(outgoing), kind == frame::hello);
}

// Sends the message if the window has room for it. Returns whether it did.
inline bool engine::give(connection &peer, waiting_message &message) {
    const uint64_t cost = message.bytes + message_cost;
    if (cost > peer.window) return false;
    peer.window -= cost;
    auto outgoing = std::make_unique<outgoing_message>();
    outgoing->owner = this;
    outgoing->connection = peer.token;
    outgoing->user = message.user;
    outgoing->bytes = message.bytes;
    outgoing->from_host = true;
    outgoing->said.receiver = peer.peer_token;
    outgoing->said.value = peer.next_place++;
    outgoing->parts = std::move(message.parts);
    if (hand_over(peer, std::move(outgoing), false) == MOORAGE_WIRE_TAKEN) return true;
    peer.queued_bytes -= message.bytes;
    --peer.queued_messages;
    reported_event report{};
    report.event.kind = MOORAGE_WIRE_SENT;
    report.event.connection = peer.token;
    report.event.user = message.user;
    events_.push_back(std::move(report));
    return true;
}

inline uint32_t engine::send(uint64_t number, std::span<const moorage_wire_part> parts,
                             uint64_t user, std::string &refused) {
    connection *const peer = find(number);
    if (!peer || peer->state != connection::connection_state::open ||
        peer->goodbye_place != MOORAGE_NEVER)
        return MOORAGE_WIRE_GONE;
    uint64_t bytes = 0;
    bool much = parts.size() > MOORAGE_WIRE_PARTS_MAX;
    for (const moorage_wire_part &part : parts) {
        if (part.bytes > peer->send_bytes_max - std::min(bytes, peer->send_bytes_max)) much = true;
        bytes += much ? 0 : part.bytes;
    }
    if (much || bytes == 0) {
        refused = much ? "more than " + std::to_string(MOORAGE_WIRE_PARTS_MAX) + " parts or " +
                             std::to_string(peer->send_bytes_max) + " bytes"
                       : "a message without bytes";
        return MOORAGE_WIRE_REFUSED;
    }
    const bool room =
        peer->queued_messages < limits_.queue_messages_max &&
        (peer->queued_bytes == 0 || peer->queued_bytes + bytes <= limits_.queue_bytes_max);
    if (!room || peer->full) {
        peer->full = true;
        return MOORAGE_WIRE_FULL;
    }
    waiting_message message;
    message.bytes = bytes;
    message.user = user;
    for (const moorage_wire_part &part : parts)
        if (part.bytes != 0)
            message.parts.push_back({const_cast<void *>(part.host_data), part.bytes});
    peer->queued_bytes += bytes;
    ++peer->queued_messages;
    if (!peer->waiting.empty() || !give(*peer, message))
        peer->waiting.push_back(std::move(message));
    return MOORAGE_WIRE_TAKEN;
}

inline void engine::send_waiting(connection &peer) {
    peer.window += std::exchange(peer.granted_all, 0);
    while (!peer.waiting.empty() && give(peer, peer.waiting.front())) peer.waiting.pop_front();
    if (!peer.full || 2 * peer.queued_bytes > limits_.queue_bytes_max ||
        2 * peer.queued_messages > limits_.queue_messages_max)
        return;
    peer.full = false;
    reported_event report{};
    report.event.kind = MOORAGE_WIRE_WRITABLE;
    report.event.connection = peer.token;
    events_.push_back(std::move(report));
}

inline void engine::release(uint64_t message) {
    lent_message *const lent = lent_.find(message);
    if (!lent) return;
    if (lent->ucx_data) ucx_.ucp_am_data_release(worker_, lent->ucx_data);
    if (connection *const peer = find(lent->connection)) {
        peer->held_bytes -= lent->bytes + message_cost;
        peer->owed_bytes += lent->bytes + message_cost;
        if (peer->state == connection::connection_state::open &&
            peer->owed_bytes > owed_max(peer->channel))
            grant(*peer);
    }
    lent_.remove(message);
}

inline void engine::grant(connection &peer) {
    say(peer, frame::grant, std::exchange(peer.owed_bytes, 0));
}

// Beginnings -------------------------------------------------------------------------------------

inline void engine::accept(const caller &caller) {
    entry *const found = entries_.find(caller.listener);
    auto *const open = found ? std::get_if<std::unique_ptr<listener>>(found) : nullptr;
    if (!open) return;  // its requests ended with it
    const std::string reason =
        caller.trusted ? handshake_limits_.refusal(connections_ - handshakes_, handshakes_)
                       : "it is in no network that trusted names";
    if (!reason.empty()) {
        ucx_.ucp_listener_reject((*open)->handle, caller.request);
        return turn_away(caller.listener,
                         caller.trusted ? MOORAGE_WIRE_TOO_MANY : MOORAGE_WIRE_STRANGER,
                         caller.address, reason);
    }
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                        UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.conn_request = caller.request;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {&engine::failed, this};
    connection &peer = add();
    peer.state = connection::connection_state::greeting;
    peer.listener = caller.listener;
    peer.address = caller.address;
    peer.deadline_ns = now_ns() + limits_.connect_ns;
    ++handshakes_;
    if (ucx_.ucp_ep_create(worker_, &params, &peer.end_point) == UCS_OK) return;
    peer.end_point = nullptr;
    end(peer, MOORAGE_WIRE_LOST, "it went before it was answered");
}

inline void engine::greet(const greeting &greeting) {
    connection *peer =
        greeting.said.kind == frame::welcome ? find(greeting.said.receiver) : nullptr;
    if (greeting.said.kind == frame::hello)
        for_each_connection([&](connection &candidate) {
            if (candidate.end_point == greeting.end_point &&
                candidate.state == connection::connection_state::greeting)
                peer = &candidate;
        });
    const bool wanted = peer && peer->state == (greeting.said.kind == frame::hello
                                                    ? connection::connection_state::greeting
                                                    : connection::connection_state::dialing);
    if (!wanted) return;
    const bool sound = greeting.said.channel < MOORAGE_WIRE_CHANNELS && greeting.said.value != 0 &&
                       greeting.said.message_bytes_max != 0 &&
                       greeting.said.held_bytes_max >= greeting.said.message_bytes_max &&
                       greeting.said.held_bytes_max < uint64_t{1} << 40;
    if (!sound) return end(*peer, MOORAGE_WIRE_MALFORMED, "a greeting with numbers that cannot be");
    if (greeting.said.kind == frame::hello) {
        peer->channel = static_cast<int32_t>(greeting.said.channel);
        --handshakes_;
    }
    peer->peer_token = greeting.said.value;
    peer->window =
        std::max(greeting.said.held_bytes_max, greeting.said.message_bytes_max + message_cost);
    peer->send_bytes_max =
        std::min(greeting.said.message_bytes_max, limits_.message_bytes_max[peer->channel]);
    peer->state = connection::connection_state::open;
    peer->deadline_ns = MOORAGE_NEVER;
    if (greeting.said.kind == frame::hello) say(*peer, frame::welcome, peer->token);
    tell_open(*peer);
}

inline void engine::tell_open(connection &peer) {
    peer.listed = true;
    reported_event report{};
    report.event.kind = peer.dialed ? MOORAGE_WIRE_CONNECTED : MOORAGE_WIRE_ACCEPTED;
    report.event.channel = peer.channel;
    report.event.connection = peer.token;
    report.event.listener = peer.listener;
    report.event.bytes = peer.send_bytes_max;
    report.address = peer.address;
    events_.push_back(std::move(report));
}

inline void engine::turn_away(uint64_t listener, int32_t reason, const std::string &address,
                              const std::string &words) {
    for (reported_event &queued : events_)
        if (queued.event.kind == MOORAGE_WIRE_TURNED_AWAY && queued.event.reason == reason &&
            queued.event.connection == listener) {
            ++queued.event.count;
            return;
        }
    reported_event report{};
    report.event.kind = MOORAGE_WIRE_TURNED_AWAY;
    report.event.reason = reason;
    report.event.connection = listener;
    report.event.count = 1;
    report.address = address;
    report.words = words;
    events_.push_back(std::move(report));
}

}  // namespace ucx_wire
