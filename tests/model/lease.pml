// SPDX-License-Identifier: Apache-2.0
/* A model of the protocol between the coordinator and its daemons: lease, epoch, commit, restart.
 *
 * It has one expert, NODES daemons that want it, and one coordinator, and starts when all are
 * connected. spin explores every order of messages, disk writes, clock ticks and faults within
 * the sizes that check.py names. Claims have the ids of docs/internals/reliability.md; "code:"
 * names the counterpart in C++.
 *
 * Abstractions:
 *   - A step of a core is one atomic step here, and its effects keep their order.
 *   - The coordinator's writes wait in memory for `sync`, and its messages wait with them (code:
 *     Effects, batches). Batches that are not durable yet are modelled as one: a crash between
 *     two of them is a crash before the later one was handled.
 *   - A connection keeps its messages in order and loses all of them when it breaks. Only a retry
 *     duplicates a message (TCP, and ids that are used once).
 *   - Time is counted in ticks. Until it is calm a tick may pass at any moment: any process can
 *     stall, and any message can be late.
 *   - A checkpoint is named by its step and the node that made it; a commit spans one step.
 *   - A daemon waits for a reply before its next request; only the verdict on a commit may come
 *     later. A daemon without work requests it repeatedly. The heartbeat that triggers the
 *     request is left out.
 * Also left out: turns, drains, attempts, datasets, keys, a second restore, and uneven clocks.
 * tests/simulation has them all.
 *
 * A planted bug is turned on by -DBUG=name; the names are those of tests/planted/planted.h.
 */

#ifndef BUG
#define BUG none
#endif
#define none 0
#define epoch_not_persisted 1
#define renewal_before_durable 2
#define epoch_not_raised 3
#define generation_not_raised 4
#define restored_leases_kept 5
#define margin_too_small 6
#define lease_from_answer 7
#define commits_past_lease 8
#define recovery_window_ignored 9
#define reconnect_ignored 10
#define lapsed_forgotten 11
#define incarnation_ignored 12
#define acknowledged_before_sync 13
#define stale_epoch_accepted 14
#define parent_not_checked 15
#define duplicate_applied 16
#define holder_not_checked 17
#define planted(bug) (BUG == bug)

/* Sizes: each bounds what can happen, never when. */
#ifndef NODES
#define NODES 2
#endif
#ifndef STEPS
#define STEPS 2              /* commits to the target */
#endif
#ifndef GRANTS
#define GRANTS 2             /* of one generation, while it is not calm */
#endif
#ifndef CRASHES
#define CRASHES 1            /* of the coordinator */
#endif
#ifndef RESTORES
#define RESTORES 0           /* of its backup */
#endif
#ifndef NODE_CRASHES
#define NODE_CRASHES 1       /* of daemon 0: it is as good as any */
#endif
#ifndef BREAKS
#define BREAKS 1             /* of connections */
#endif
#ifndef LIES
#define LIES 0               /* commits by a rostered daemon that does not keep to its own rules */
#endif

/* Ticks. code: coordinator/core/config.h */
#define LEASE 2
#define GRACE 1
#define SILENCE (planted(margin_too_small) -> LEASE - GRACE : LEASE + GRACE)

#define NOBODY NODES
#define GENERATION 8         /* code: Epoch, its upper 16 bits */
#define EPOCHS (GENERATION * (RESTORES + 2))

/* The checkpoint of a step by a node; 0 is none. */
#define step_of(manifest) ((manifest + NODES - 1) / NODES)
#define next_of(manifest, node) (step_of(manifest) * NODES + node + 1)

mtype = { HELLO, BEAT, ASK, COMMIT };                        /* to the coordinator */
/* to a daemon; LATE: a verdict after FETCHING */
mtype = { WELCOME, RENEWED, ASSIGNED, VERDICT, LATE };
mtype = { NOTHING, ACCEPTED, FENCED, STALE_PARENT, FETCHING };  /* a commit's status */

/* HELLO incarnation, BEAT, ASK, COMMIT epoch parent */
chan up[NODES] = [1] of { mtype, byte, byte };
/* WELCOME generation, RENEWED epoch, ASSIGNED epoch head, VERDICT and LATE epoch head status
 * checkpoint */
chan down[NODES] = [2] of { mtype, byte, byte, mtype, byte };
/* Said once the batch is durable. code: Send.after_batch */
chan held[NODES] = [2] of { mtype, byte, byte, mtype, byte };

/* ---- What the coordinator writes. code: coordinator/state.proto ---- */
typedef Record {
  byte generation = 1;
  byte epoch;
  byte holder = NOBODY;
  byte holder_incarnation;
  bool present;              /* the holder; code: stored::Node.present */
  byte head;
  byte head_epoch;
  byte incarnation[NODES] = 1;
};
Record memory, disk;
#if RESTORES
Record backup;
bool has_backup;
#endif

/* ---- What it forgets in a crash. code: coordinator/core/records.h ---- */
bool dirty;                  /* memory is ahead of disk */
bool grant_dirty;            /* code: Expert.grant_batch > persisted */
bool lapsed;
bool greeted[NODES] = true;  /* said Hello on the connection that is open */
bool closing;                /* the holder's connection has closed */
byte silent;                 /* ticks since the holder was heard */
byte recovering;             /* ticks left of the recovery window */
bool pending;                /* a commit whose object is being fetched; code: PendingCommit */
byte pending_node, pending_epoch, pending_parent;

/* ---- A daemon. code: daemon/core/session.h, daemon/core/slot.h, daemon/core/work.h ---- */
mtype = { GONE, CLOSED, OPEN };
typedef Daemon {
  mtype phase = OPEN;        /* of its connection, and of what it waits for */
  mtype waits = NOTHING;
  byte incarnation = 1;
  byte generation = 1;       /* the highest seen, durable */
  byte epoch;                /* of its work; 0: it has none */
  byte head;
  byte behind;  /* epochs up to this one are never taken up again; code: Slot.behind_ */
  byte left;                 /* ticks for which it may commit; code: Slot.lease_until_ */
  byte age;                  /* of the heartbeat that it waits for, in ticks */
  bool must_ask;             /* for its assignment; code: Session::assignment_due */
};
Daemon daemon[NODES];

/* ---- Faults, and what is only here to be claimed about ---- */
byte crashes, restores, node_crashes, breaks, lies;
byte told_epoch;             /* the highest that was made known */
byte told_head;              /* the last that was acknowledged */
byte owner[EPOCHS];          /* whom an epoch was made known to: node and incarnation */

#ifdef LIVENESS
bool calm;                   /* no more faults; time passes when nothing else can happen */
bool beat_due[NODES], commit_due[NODES];  /* once a tick */
#define is_due(what, n) (what[n])
#define set_due(what, n, is) what[n] = is
#else
#define calm false
#define is_due(what, n) true
#define set_due(what, n, is) skip
#endif

/* ---- When something is due: asked by who does it, and by the clock once it is calm ---- */
#define may_hold(n) (greeted[n])
#define runs_out (memory.holder != NOBODY && !lapsed && !recovering && silent >= SILENCE && \
                  (memory.present || !planted(lapsed_forgotten)))
#define ends_early (closing && (!recovering || planted(recovery_window_ignored)))
#define wants_holder ((memory.holder == NOBODY || lapsed) && step_of(memory.head) < STEPS)
#define is_fetched (pending && greeted[pending_node])
#define is_free(n) (daemon[n].phase == OPEN && daemon[n].waits == NOTHING)
#define may_beat(n) (is_free(n) && daemon[n].epoch && is_due(beat_due, n))
#define may_ask(n) \
  (is_free(n) && (daemon[n].must_ask || (daemon[n].epoch == 0 && is_due(beat_due, n))))
#define may_commit(n) (is_free(n) && daemon[n].epoch && step_of(daemon[n].head) < STEPS && \
                       (daemon[n].left || planted(commits_past_lease)) && is_due(commit_due, n))
#define has_asked(n) (nempty(up[n]))
#define is_greeted(n) (greeted[n])
#define may_lie(n) (is_free(n) && empty(up[n]))
#define at_rest(n) (empty(up[n]) && empty(down[n]) && !(wants_holder && may_hold(n)) && \
                    !(daemon[n].phase == CLOSED && daemon[n].waits == NOTHING) && \
                    !may_beat(n) && !may_ask(n) && !may_commit(n))

#if NODES == 2
#define each(holds) (holds(0) && holds(1))
#define some(holds) (holds(0) || holds(1))
#define pick(holds) if :: holds(0) -> n = 0 :: holds(1) -> n = 1 fi
#else
#define each(holds) (holds(0) && holds(1) && holds(2))
#define some(holds) (holds(0) || holds(1) || holds(2))
#define pick(holds) if :: holds(0) -> n = 0 :: holds(1) -> n = 1 :: holds(2) -> n = 2 fi
#endif

inline copy(to, from) {
  d_step {
    to.generation = from.generation; to.epoch = from.epoch;
    to.holder = from.holder; to.holder_incarnation = from.holder_incarnation;
    to.present = from.present;
    to.head = from.head; to.head_epoch = from.head_epoch;
    i = 0;
    do
    :: i < NODES -> to.incarnation[i] = from.incarnation[i]; i++
    :: else -> i = 0; break
    od
  }
}

/* With all that was on it; both sides learn of it. code: Session::closed, Slot::connection_lost */
inline lose_connection(n) {
  d_step {
    do
    :: nempty(up[n]) -> up[n]?_,_,_
    :: nempty(down[n]) -> down[n]?_,_,_,_,_
    :: nempty(held[n]) -> held[n]?_,_,_,_,_
    :: empty(up[n]) && empty(down[n]) && empty(held[n]) -> break
    od;
    daemon[n].phase = (daemon[n].phase == GONE -> GONE : CLOSED);
    daemon[n].waits = NOTHING;
    daemon[n].age = 0;
    daemon[n].must_ask = false
  }
}

/* ======== What the coordinator says ======== */

/* code: Leases::assignment_of, Machine::heartbeat */
inline claim_epoch(n, named) {
  if
  :: named ->
    assert(disk.epoch >= named);                                                       /* S7 */
    assert(owner[named] == 0 || owner[named] == n + 1 + NODES * disk.incarnation[n]);  /* S1 */
    owner[named] = n + 1 + NODES * disk.incarnation[n];
    told_epoch = (named > told_epoch -> named : told_epoch)
  :: else
  fi
}

inline claim_head(named) {
  assert(step_of(disk.head) >= step_of(named));                                        /* S7 */
  assert(step_of(named) != step_of(told_head) || named == told_head);                  /* S5 */
  told_head = (step_of(named) > step_of(told_head) -> named : told_head)
}

inline claim(n, what, number, manifest, status) {
  if
  :: what == ASSIGNED -> claim_epoch(n, number); claim_head(manifest)
  :: status == ACCEPTED -> claim_head(manifest)
  :: else
  fi
}

/* Once what it rests on is durable. code: Machine::finish, Host::release */
inline say(n, what, number, manifest, status, about) {
  if
  :: !dirty || (planted(epoch_not_persisted) && what == ASSIGNED) ||
     (planted(acknowledged_before_sync) && status == ACCEPTED) ->
    claim(n, what, number, manifest, status);
    down[n]!what, number, manifest, status, about
  :: else -> held[n]!what, number, manifest, status, about
  fi
}

/* ======== Leases and commits ======== */

inline drop_pending() {
  pending = false; pending_node = 0; pending_epoch = 0; pending_parent = 0
}

/* code: Leases::release */
inline release() {
  memory.holder = NOBODY;
  memory.holder_incarnation = 0;
  lapsed = false; closing = false; silent = 0;
  drop_pending();
  dirty = true
}

/* code: Leases::raise_epoch */
inline raise_epoch() {
  if
  :: planted(epoch_not_raised) && memory.epoch != 0
  :: else -> memory.epoch = memory.generation * GENERATION + memory.epoch % GENERATION + 1
  fi;
  dirty = true
}

/* Nobody else has it yet, and its holder gets it back by being heard. code: Leases::lapse_all */
inline lapse() {
  assert(!recovering);                                                                 /* L4 */
  lapsed = true;
  closing = false;
  dirty = dirty || memory.present;
  memory.present = false
}

/* The holder is heard. code: Leases::resume_if_lapsed */
inline hear() {
  silent = 0;
  lapsed = false;
  dirty = dirty || !memory.present;
  memory.present = true
}

/* code: Commits::accept */
inline accept(n, with_epoch, parent) {
  assert(with_epoch == memory.epoch);                                                  /* S2 */
  assert(memory.holder == n);                                                          /* S1 */
  assert(memory.holder_incarnation == memory.incarnation[n]);                          /* S1 */
  assert(parent == memory.head);                                                       /* S5 */
  memory.head = next_of(parent, n);
  memory.head_epoch = with_epoch;
  drop_pending();
  dirty = true;
  if
  :: step_of(memory.head) == STEPS -> release()
  :: else
  fi
}

/* The questions in the code's order. code: Commits::decide */
inline decide(n, with_epoch, parent, stored, verdict) {
  if
  :: with_epoch != memory.epoch && !planted(stale_epoch_accepted) -> verdict = FENCED
  :: else ->
    if
    /* the first answer, again */
    :: memory.head_epoch == with_epoch && memory.head == next_of(parent, n) ->
      if
      :: planted(duplicate_applied) -> accept(n, with_epoch, parent)
      :: else
      fi;
      verdict = ACCEPTED
    :: else ->
      if
      :: memory.holder == NOBODY ||
         ((memory.holder != n || memory.holder_incarnation != memory.incarnation[n]) &&
          !planted(holder_not_checked)) -> verdict = FENCED
      :: else ->
        if
        :: parent != memory.head && !planted(parent_not_checked) -> verdict = STALE_PARENT
        :: else ->
          if
          :: stored -> accept(n, with_epoch, parent); verdict = ACCEPTED
          :: else -> verdict = FETCHING
          fi
        fi
      fi
    fi
  fi
}

/* code: Core::load, Machine::start */
inline start() {
  copy(memory, disk);
  dirty = false; grant_dirty = false; lapsed = false; closing = false; silent = 0;
  drop_pending();
  recovering = LEASE + GRACE;
  do
  :: n < NODES -> greeted[n] = false; lose_connection(n); n++
  :: else -> n = 0; break
  od
}

/* What was made known is never current again under an older name. */
inline claim_start() {
  assert(memory.holder == NOBODY || memory.epoch >= told_epoch)                        /* S3 */
}

proctype Coordinator() {
  byte n, number, parent, i;
  mtype what = NOTHING, verdict = NOTHING;
  do
  /* ---- A request. code: Machine::received, Machine::dispatch ---- */
  :: atomic {
      pick(has_asked);
      up[n]?what, number, parent;
      if
      :: what == HELLO ->  /* code: Machine::greet_node */
        if
        :: number != memory.incarnation[n] ->
          if
          :: memory.holder == n && !planted(incarnation_ignored) -> release()
          :: else
          fi;
          memory.incarnation[n] = number;
          dirty = true
        :: else
        fi;
        greeted[n] = true;
        if
        :: memory.holder == n -> closing = closing && planted(reconnect_ignored); hear()
        :: else
        fi;
        say(n, WELCOME, memory.generation, 0, NOTHING, 0)
      :: what == BEAT ->                                              /* code: Machine::heartbeat */
        if
        :: memory.holder == n -> hear()
        :: else
        fi;
        /* At once, from what is durable already. */
        number = (memory.holder == n && (!grant_dirty || planted(renewal_before_durable))
                  -> memory.epoch : 0);
        claim_epoch(n, number);
        down[n]!RENEWED, number, 0, NOTHING, 0
      :: what == ASK ->  /* code: Leases::assignment_of */
        number = (memory.holder == n -> memory.epoch : 0);
        say(n, ASSIGNED, number, memory.head, NOTHING, 0)
      :: what == COMMIT ->                                            /* code: Commits::commit */
        decide(n, number, parent, false, verdict);
        if
        :: verdict == FETCHING ->
          pending = true; pending_node = n; pending_epoch = number; pending_parent = parent
        :: else
        fi;
        say(n, VERDICT, number, memory.head, verdict, next_of(parent, n))
      fi;
      n = 0; number = 0; parent = 0; what = NOTHING; verdict = NOTHING
    }

  /* ---- sync: the disk has answered. code: Persisted ---- */
  :: atomic {
      dirty ->
      copy(disk, memory);
      dirty = false; grant_dirty = false;
      do
      :: n < NODES ->
        do
        :: nempty(held[n]) ->
          held[n]?what, number, parent, verdict, i;
          claim(n, what, number, parent, verdict);
          down[n]!what, number, parent, verdict, i
        :: empty(held[n]) -> break
        od;
        n++
      :: else -> break
      od;
      n = 0; number = 0; parent = 0; i = 0; what = NOTHING; verdict = NOTHING
    }

  /* ---- The object of a commit is durable, or cannot be fetched.
   * code: Commits::try_again, Commits::object_failed ---- */
  :: atomic {
      is_fetched ->
      n = pending_node; number = pending_epoch; parent = pending_parent;
      drop_pending();
      decide(n, number, parent, true, verdict);
      if
      :: empty(up[n]) && empty(held[n]) && empty(down[n]) ->
        say(n, LATE, number, memory.head, verdict, next_of(parent, n))
      :: nempty(up[n]) || nempty(held[n]) || nempty(down[n])  /* lost: its sender asks again */
      fi;
      n = 0; number = 0; parent = 0; verdict = NOTHING
    }
  :: atomic { pending && (!calm || !greeted[pending_node]) -> drop_pending() }

  /* ---- The scheduler. code: Leases::grant ---- */
  :: atomic {
      wants_holder && some(may_hold) && (calm || memory.epoch % GENERATION < GRANTS) ->
      pick(may_hold);
      raise_epoch();
      assert(memory.epoch > told_epoch);                                               /* S3 */
      memory.holder = n;
      memory.holder_incarnation = memory.incarnation[n];
      memory.present = true;
      lapsed = false; closing = false; silent = 0; grant_dirty = true;
      drop_pending();
      n = 0
    }

  /* ---- Silence. code: Leases::expire ---- */
  :: atomic {
      runs_out ->
      /* Its holder has stopped counting on it before. */
      /* S1 */
      assert(daemon[memory.holder].epoch != memory.epoch || daemon[memory.holder].left == 0);
      lapse()
    }

  /* ---- A closed connection. code: Leases::end_early ---- */
  :: atomic {
      ends_early ->
      assert(!greeted[memory.holder]);                                                 /* L4 */
      lapse()
    }

  /* ---- SIGKILL, and the next start ---- */
  :: atomic {
      !calm && crashes < CRASHES ->
      crashes++;
      start();
      claim_start()
    }

#if RESTORES
  /* ---- A backup is taken, and later restored.
   * code: Core::restored, Leases::end_leases_of_old_generations ---- */
  :: atomic { !has_backup -> has_backup = true; copy(backup, disk) }
  :: atomic {
      !calm && has_backup && restores < RESTORES ->
      restores++;
      copy(disk, backup);
      told_head = disk.head;  /* work since then is discarded, by promise */
      disk.generation = disk.generation + (planted(generation_not_raised) -> 0 : 1);
      start();
      if
      :: memory.holder != NOBODY && memory.epoch / GENERATION != memory.generation &&
         !planted(restored_leases_kept) ->
        release();
        raise_epoch()
      :: else
      fi;
      claim_start()
    }
#endif
  od
}

/* ======== A daemon ======== */

/* Work that is over. code: Slot::discard */
inline discard(n) {
  daemon[n].behind = (daemon[n].epoch > daemon[n].behind -> daemon[n].epoch : daemon[n].behind);
  daemon[n].epoch = 0;
  daemon[n].head = 0;
  daemon[n].left = 0;
  daemon[n].must_ask = false
}

proctype Node(byte n) {
  byte number, manifest, about;
  mtype what = NOTHING, status = NOTHING;
  do
  /* ---- Hello comes first. code: Core::say_hello ---- */
  :: atomic {
      daemon[n].phase == CLOSED && daemon[n].waits == NOTHING ->
      daemon[n].waits = HELLO;
      up[n]!HELLO, daemon[n].incarnation, 0
    }

  /* ---- A heartbeat. code: Session::heartbeat ---- */
  :: atomic {
      may_beat(n) ->
      set_due(beat_due, n, false);
      daemon[n].waits = BEAT;
      up[n]!BEAT, 0, 0
    }

  /* ---- Its assignment. code: Session::assignment_due ---- */
  :: atomic {
      may_ask(n) ->
      set_due(beat_due, n, false);
      daemon[n].waits = ASK;
      up[n]!ASK, 0, 0
    }

  /* ---- A round is trained and stored: it is committed, or retried. code: Slot::commit_if_due */
  :: atomic {
      may_commit(n) ->
      assert(daemon[n].left);                                                          /* S1 */
      set_due(commit_due, n, false);
      daemon[n].waits = COMMIT;
      up[n]!COMMIT, daemon[n].epoch, daemon[n].head
    }

  /* ---- An answer. code: Core::on(Reply) ---- */
  :: atomic {
      down[n]?what, number, manifest, status, about ->
      if
      :: what == WELCOME ->                                           /* code: Core::on_hello */
        daemon[n].waits = NOTHING;
        if
        :: number < daemon[n].generation                              /* refused */
        :: else ->
          daemon[n].phase = OPEN;
          daemon[n].generation = number;
          daemon[n].must_ask = true;  /* the first assignment is always asked for */
          set_due(beat_due, n, true);
          set_due(commit_due, n, true)
        fi
      :: what == RENEWED ->  /* code: Session::heartbeat_answered */
        daemon[n].waits = NOTHING;
        if
        :: number && number == daemon[n].epoch ->
          daemon[n].left = (planted(lease_from_answer) -> LEASE : LEASE - daemon[n].age)
        :: else -> daemon[n].must_ask = true
        fi;
        daemon[n].age = 0
      :: what == ASSIGNED ->  /* code: Slot::assign, Slot::adopt_head */
        daemon[n].waits = NOTHING;
        daemon[n].must_ask = false;
        if
        :: number && number == daemon[n].epoch ->
          daemon[n].head =
            (step_of(manifest) > step_of(daemon[n].head) -> manifest : daemon[n].head)
        :: else ->
          if
          :: daemon[n].epoch -> discard(n)
          :: else
          fi;
          if
          :: number > daemon[n].behind ->
            daemon[n].epoch = number;
            daemon[n].head = manifest;
            set_due(beat_due, n, true);
            set_due(commit_due, n, true)
          :: else
          fi
        fi
      :: what == LATE && daemon[n].waits == COMMIT  /* it was asked again. code: Slot::is_commit */
      /* code: Slot::on_commit */
      :: what == VERDICT || (what == LATE && daemon[n].waits != COMMIT) ->
        daemon[n].waits = (what == VERDICT -> NOTHING : daemon[n].waits);
        if
        :: status == FETCHING || number != daemon[n].epoch || about != next_of(daemon[n].head, n)
        :: else ->
          set_due(commit_due, n, true);
          if
          :: status == FENCED -> discard(n)
          :: else -> daemon[n].head = manifest
          fi
        fi
      fi;
      number = 0; manifest = 0; about = 0; what = NOTHING; status = NOTHING
    }
  od
}

/* ======== Time and faults ======== */

inline tick() {
  do
  :: n < NODES ->
    daemon[n].left = (daemon[n].left -> daemon[n].left - 1 : 0);
    daemon[n].age = (daemon[n].waits == BEAT && daemon[n].age < LEASE
                     -> daemon[n].age + 1 : daemon[n].age);
    set_due(beat_due, n, true);
    set_due(commit_due, n, true);
    n++
  :: else -> n = 0; break
  od;
  silent = (memory.holder != NOBODY && silent < LEASE + GRACE -> silent + 1 : silent);
  recovering = (recovering -> recovering - 1 : 0)
}

proctype World() {
  byte n;
  do
  :: d_step { !calm -> tick() }
#ifdef LIVENESS
  :: d_step { calm && !dirty && !is_fetched && !runs_out && !ends_early && each(at_rest) -> tick() }
  :: atomic { !calm -> calm = true }
#endif

  /* A connection breaks. code: Roster::close */
  :: atomic {
      !calm && breaks < BREAKS && some(is_greeted) ->
      breaks++;
      pick(is_greeted);
      lose_connection(n);
      greeted[n] = false;
      closing = closing || memory.holder == n;
      n = 0
    }

  /* A commit in the current epoch by whoever likes, on whatever parent. */
  :: atomic {
      !calm && lies < LIES && disk.epoch && some(may_lie) ->
      lies++;
      pick(may_lie);
      daemon[n].waits = COMMIT;
      if
      :: up[n]!COMMIT, disk.epoch, 0
      :: disk.head -> up[n]!COMMIT, disk.epoch, disk.head
      fi;
      n = 0
    }

  /* A daemon is killed. It starts again, with its disk or with an empty one, or never. */
  :: atomic {
      !calm && node_crashes < NODE_CRASHES ->
      node_crashes++;
      lose_connection(0);
      closing = closing || (greeted[0] && memory.holder == 0);
      greeted[0] = false;
      daemon[0].incarnation++;
      daemon[0].left = 0;
      daemon[0].behind = 0;
      if
      :: skip
      :: daemon[0].epoch = 0; daemon[0].head = 0; daemon[0].generation = 0
      :: daemon[0].epoch = 0; daemon[0].head = 0; daemon[0].phase = GONE
      fi
    }
  od
}

init {
  byte n;
  atomic {
    run Coordinator();
    do
    :: n < NODES -> run Node(n); n++
    :: else -> break
    od;
    run World()
  }
}

#ifdef LIVENESS
/* With one healthy node the work gets done, whatever happened before. */
ltl L5 { [] (calm -> <> (step_of(disk.head) == STEPS)) }
#endif
