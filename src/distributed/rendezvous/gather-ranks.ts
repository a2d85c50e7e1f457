import type { Store } from '../../peer/store/store.ts'
import { type Env, toHex } from '../../util/env.ts'
import { PeerError } from '../../util/errors.ts'
import { formatRanks } from '../../util/format-ranks.ts'
import { quoted } from '../../util/kind-of.ts'
import type { Backend, Place, RelayChoice, Topology } from './plan-links.ts'
import { appear, decode, peek, putFirst, read } from './store-values.ts'

/**
 * How ranks find one another by the keys of a store, and agree who is there.
 *
 *   round            the number of the round that ranks join; who finds it closed, or broken, begins the next
 *   R/terms          what the first said: world size, backend, topology, relay
 *   R/rank/r         who is rank r; the first to claim it keeps it
 *   R/beat/id        changes as long as that tab lives and joins
 *   R/call           closes round R: everyone is there (go), or an error for all (fault), or a dead tab was in it (stale)
 *   R/here/r         rank r's answer to the call
 *   R/outcome        rank 0's word: everyone answered (formed), or not (stale)
 *   R/done           how many have all their links; the last one takes the round's keys away
 *
 * What a crash left in a room is found by its beat standing still, and costs a round, not the room.
 */

/** Terms that must be equal on all ranks. */
export interface Terms {
  worldSize: number
  backend: Backend
  topology: Topology
  relay: RelayChoice
}

/** A rank, as it says who and where it is. */
export interface Member extends Place {
  id: string
  rank: number
}

export interface GatherOptions {
  store: Store
  env: Env
  /** Given out in the order of coming where no tab gives it. */
  rank: number | undefined
  terms: Terms
  place: Place
  joinTimeoutMs: number
  /** Called at most once: ranks are still missing after 3 s. */
  onwaiting?: ((rank: number, missing: readonly number[]) => void) | undefined
  /** Ends the waiting; its reason is what is thrown. */
  signal?: AbortSignal | undefined
}

/** All ranks of a round. */
export interface Gathered {
  round: number
  rank: number
  /** By rank. */
  members: Member[]
}

/** A living tab's beat changes so often. units: ms. */
const beatMs = 1_000
/** A tab whose beat stood still so long is dead. units: ms. */
const leaseMs = 3_500
/** How long a rank waits before it reports that it waits. units: ms. */
const quietMs = 3_000
/** How long ranks may take to answer the call. units: ms. */
const answerMs = 10_000

type Verdict =
  | { kind: 'go' }
  | { kind: 'stale' }
  | { kind: 'formed'; members: Member[] }
  | { kind: 'fault'; code: 'peer.mismatch' | 'peer.timeout'; text: string }

/** This round cannot be: try the next. */
class Stale extends Error {}

/**
 * Resolves with who is who once all ranks are there.
 *
 * errors: `peer.timeout`, naming the ranks that are missing; `peer.mismatch` on all ranks where they disagree or two take the same rank,
 * naming both; the reason of `signal`.
 */
export async function gatherRanks(options: GatherOptions): Promise<Gathered> {
  const { env } = options
  let deadlineMs = env.now() + options.joinTimeoutMs
  const waiting = { sinceMs: env.now(), isReport: false }
  for (;;) {
    options.signal?.throwIfAborted()
    const round = Number((await peek(options.store, 'round')) ?? 0)
    const attempt = new Attempt(options, round, deadlineMs, waiting)
    try {
      return await attempt.run()
    } catch (thrown) {
      await attempt.withdraw()
      if (!(thrown instanceof Stale)) throw thrown
      await beginRound(options.store, round)
      // Long enough to see who else is alive and comes along, so that no other is called missing.
      deadlineMs = Math.max(deadlineMs, env.now() + leaseMs + beatMs)
    } finally {
      attempt.stopBeat()
    }
  }
}

/** Records that this rank has all its links; the last rank to do so removes the round's keys. */
export async function leaveRound(store: Store, { round, members }: Gathered): Promise<void> {
  const count = await store.add(`${round}/done`, 1)
  if (count < members.length) return
  await beginRound(store, round)
  await clearRound(store, round, members)
}

/** Takes all keys of a round away. */
async function clearRound(
  store: Store,
  round: number,
  members: readonly Pick<Member, 'id' | 'rank'>[],
): Promise<void> {
  const ofRanks = members.flatMap(({ id, rank }) => [
    `${round}/rank/${rank}`,
    `${round}/here/${rank}`,
    `${round}/beat/${id}`,
  ])
  const letters = await Promise.all(
    members.map(async ({ rank }) => {
      const box = `${round}/box/${rank}`
      const sent = Number((await peek(store, box)) ?? 0)
      return [box, ...Array.from({ length: sent }, (_, n) => `${box}/${n + 1}`)]
    }),
  )
  const ofRound = ['terms', 'call', 'outcome', 'done', 'auto'].map((name) => `${round}/${name}`)
  await Promise.all([...ofRanks, ...letters.flat(), ...ofRound].map((key) => store.deleteKey(key)))
}

/**
 * From now on, who comes joins the round after `round`; unless one that is later still has begun.
 *
 * The rank that begins it removes what is left of the round before `round`: one that failed has nobody else to do so, and of the newest one
 * others may still read how it ended.
 */
async function beginRound(store: Store, round: number): Promise<void> {
  const next = String(round + 1)
  const found = decode(await store.compareSet('round', round === 0 ? '' : String(round), next))
  if (found === next && round > 0) await clearLeft(store, round - 1)
}

async function clearLeft(store: Store, round: number): Promise<void> {
  const terms = await peek(store, `${round}/terms`)
  if (terms === undefined) return
  const { worldSize }: Terms = JSON.parse(terms)
  const claims = await Promise.all(
    Array.from({ length: worldSize }, async (_, rank) => {
      const text = await peek(store, `${round}/rank/${rank}`)
      return { rank, id: text === undefined ? '' : (JSON.parse(text) as Member).id }
    }),
  )
  await clearRound(store, round, claims)
}

/** One rank's try to join one round. */
class Attempt {
  private readonly id: string
  private readonly store: Store
  private readonly size: number
  private rank: number | undefined
  private beats = 0
  private cancelBeat: () => void = () => undefined
  private isBeating = true
  /** Beats of the others when the end was near, by id. */
  private lateBeats: Map<number, string | undefined> | undefined

  constructor(
    private readonly options: GatherOptions,
    private readonly round: number,
    private readonly deadlineMs: number,
    private readonly waiting: { readonly sinceMs: number; isReport: boolean },
  ) {
    this.store = options.store
    this.size = options.terms.worldSize
    this.id = toHex(options.env.random(8))
  }

  async run(): Promise<Gathered> {
    if ((await this.peek('call')) !== undefined) throw new Stale()
    await this.beat()
    await this.agree()
    const rank = await this.claim()
    // If the round's keys were removed meanwhile, another round has begun.
    await this.checkRound()
    await this.awaitCall(rank)
    await this.store.set(this.key(`here/${rank}`), this.id)
    const members = rank === 0 ? await this.decide() : await this.awaitOutcome()
    return { round: this.round, rank, members }
  }

  /** Takes this rank's claim away, so that others do not count on it. */
  async withdraw(): Promise<void> {
    this.stopBeat()
    const keys = [`beat/${this.id}`, ...(this.rank === undefined ? [] : [`rank/${this.rank}`])]
    // Without the store there is nothing to tidy, and the error that led here says more.
    await Promise.all(keys.map((key) => this.store.deleteKey(this.key(key)))).catch(() => undefined)
  }

  stopBeat(): void {
    this.isBeating = false
    this.cancelBeat()
  }

  private async beat(): Promise<void> {
    this.beats += 1
    await this.store.set(this.key(`beat/${this.id}`), String(this.beats))
    if (!this.isBeating) return
    this.cancelBeat = this.options.env.after(beatMs, () => {
      // The calls that wait on the store report its failure.
      this.beat().catch(() => undefined)
    })
  }

  /** Says what this rank expects, and hears what the first said. */
  private async agree(): Promise<void> {
    const { terms, rank, place } = this.options
    const own = { ...terms, id: this.id, rank: rank ?? null, name: place.name }
    const first = JSON.parse(
      await putFirst(this.store, this.key('terms'), JSON.stringify(own)),
    ) as typeof own
    const names = ['worldSize', 'backend', 'topology', 'relay'] as const
    const other = names.find((name) => first[name] !== own[name])
    const isMixed = (first.rank === null) !== (own.rank === null)
    if (!other && !isMixed) return
    if (!(await this.isAlive(first.id))) throw new Stale()
    const rankOf = ({ rank, name }: typeof own) =>
      rank === null ? `none from a tab (${name})` : `${rank} from another (${name})`
    const described = (one: typeof own) =>
      `${other} ${quoted(other && one[other])} from ${one.rank === null ? 'a tab' : `rank ${one.rank}`} (${one.name})`
    await this.fail(
      'peer.mismatch',
      other
        ? `initProcessGroup: ranks disagree about ${other}: ${described(first)} and ${described(own)}. Pass the same value on all ranks.`
        : `initProcessGroup: expected a rank from all tabs or from none, got ${rankOf(first)} and ${rankOf(own)}. Pass rank in all tabs, or in none.`,
    )
  }

  private async claim(): Promise<number> {
    const { rank } = this.options
    if (rank !== undefined) {
      const other = await this.claimRank(rank)
      if (!other) return rank
      if (!(await this.isAlive(other.id))) throw new Stale()
      await this.fail(
        'peer.mismatch',
        `initProcessGroup: rank ${rank} was given twice, to ${other.name} (${other.id}) and to ${this.options.place.name} (${this.id}). Give each tab a different rank.`,
      )
    }
    // Each begins to look behind the one that came before, so that not all ask for rank 0 first.
    const begin = (await this.store.add(this.key('auto'), 1)) - 1
    const holders: Member[] = []
    for (let n = 0; n < this.size; n++) {
      const free = (begin + n) % this.size
      const other = await this.claimRank(free)
      if (!other) return free
      holders.push(other)
    }
    const living = await Promise.all(holders.map(({ id }) => this.isAlive(id)))
    if (living.includes(false)) throw new Stale()
    throw new PeerError(
      'peer.mismatch',
      `initProcessGroup: all ${this.size} ranks are taken. Pass a larger worldSize on all ranks, or use another room.`,
    )
  }

  /** Who has the rank, if it is another. */
  private async claimRank(rank: number): Promise<Member | undefined> {
    const own: Member = { ...this.options.place, id: this.id, rank }
    const found: Member = JSON.parse(
      await putFirst(this.store, this.key(`rank/${rank}`), JSON.stringify(own)),
    )
    if (found.id !== this.id) return found
    this.rank = rank
    return undefined
  }

  /** Resolves when the round is called; rank 0 calls it when all are there. */
  private async awaitCall(rank: number): Promise<void> {
    const slots = Array.from({ length: this.size }, (_, one) => this.key(`rank/${one}`))
    for (;;) {
      const found = await this.peek('call')
      if (found !== undefined) {
        this.take(JSON.parse(found))
        return
      }
      await this.checkRound()
      await this.checkTime()
      await this.tellWaiting(rank)
      const slice = this.slice()
      if (rank !== 0) await appear(this.store, [this.key('call')], slice)
      else if (await appear(this.store, slots, slice)) await this.put('call', { kind: 'go' })
    }
  }

  private async tellWaiting(rank: number): Promise<void> {
    const { env, onwaiting } = this.options
    if (!onwaiting || this.waiting.isReport || env.now() - this.waiting.sinceMs < quietMs) return
    const beats = await this.readBeats()
    const missing = [...beats.keys()].filter((one) => beats.get(one) === undefined)
    if (missing.length === 0) return
    this.waiting.isReport = true
    onwaiting(rank, missing)
  }

  /** Rank 0: all answer the call, or the round is broken. */
  private async decide(): Promise<Member[]> {
    const { env, signal } = this.options
    const ranks = Array.from({ length: this.size }, (_, one) => one)
    const answers = ranks.map((one) => this.key(`here/${one}`))
    const sinceMs = env.now()
    const before = await this.readBeats()
    while (!(await appear(this.store, answers, this.slice()))) {
      signal?.throwIfAborted()
      const waitedMs = env.now() - sinceMs
      if (waitedMs < leaseMs) continue
      const now = await this.readBeats()
      const isBroken = ranks.some((one) => one !== 0 && now.get(one) === before.get(one))
      if (!isBroken && waitedMs < answerMs && env.now() < this.deadlineMs) continue
      await this.put('outcome', { kind: 'stale' })
      throw new Stale()
    }
    const members = await Promise.all(
      ranks.map(async (one): Promise<Member | null> => {
        return JSON.parse((await this.peek(`rank/${one}`)) ?? 'null')
      }),
    )
    // One may have answered and been ended since.
    const isWhole = members.every((member) => member !== null)
    return this.formed(
      await this.put('outcome', isWhole ? { kind: 'formed', members } : { kind: 'stale' }),
    )
  }

  private async awaitOutcome(): Promise<Member[]> {
    const { env } = this.options
    const untilMs = env.now() + answerMs + leaseMs
    while (!(await appear(this.store, [this.key('outcome')], this.slice()))) {
      this.options.signal?.throwIfAborted()
      if (env.now() >= untilMs) await this.put('outcome', { kind: 'stale' })
    }
    return this.formed(JSON.parse(await read(this.store, this.key('outcome'))))
  }

  private formed(verdict: Verdict): Member[] {
    if (verdict.kind !== 'formed') throw new Stale()
    const isIn = verdict.members.some(({ id }) => id === this.id)
    if (!isIn) throw new Stale()
    return verdict.members
  }

  private take(verdict: Verdict): void {
    if (verdict.kind === 'fault') throw new PeerError(verdict.code, verdict.text)
    if (verdict.kind !== 'go') throw new Stale()
  }

  private async checkRound(): Promise<void> {
    this.options.signal?.throwIfAborted()
    const now = Number((await peek(this.store, 'round')) ?? 0)
    if (now !== this.round) throw new Stale()
  }

  /** Ends the round for all when the time is over. */
  private async checkTime(): Promise<void> {
    const { env, joinTimeoutMs } = this.options
    const leftMs = this.deadlineMs - env.now()
    if (leftMs <= leaseMs) this.lateBeats ??= await this.readBeats()
    if (leftMs > 0) return
    const beats = await this.readBeats()
    const isMissing = (one: number) => {
      const beat = beats.get(one)
      const isStill = joinTimeoutMs > leaseMs && beat === this.lateBeats?.get(one)
      return one !== this.rank && (beat === undefined || isStill)
    }
    const missing = [...beats.keys()].filter(isMissing)
    const got =
      missing.length > 0 ? `missing ${formatRanks(missing)}` : 'the last one came too late'
    // The ranks of an earlier round may be a group that runs; no key shows that.
    const hint =
      this.round > 0
        ? ' If a group is already running in this room, this rank waited for the next one: use another room or groupName.'
        : ''
    await this.fail(
      'peer.timeout',
      `initProcessGroup: rank ${this.rank} waited ${joinTimeoutMs} ms for ${this.size} ranks: ${got}. Start ${missing.length === 1 ? 'it' : 'them'} with the same room, or raise joinTimeoutMs.${hint}`,
    )
  }

  /** The beat of each rank that is there. */
  private async readBeats(): Promise<Map<number, string | undefined>> {
    const ranks = Array.from({ length: this.size }, (_, one) => one)
    const beats = ranks.map(async (one): Promise<[number, string | undefined]> => {
      const text = await this.peek(`rank/${one}`)
      if (text === undefined) return [one, undefined]
      const { id }: Member = JSON.parse(text)
      return [one, `${id} ${await this.peek(`beat/${id}`)}`]
    })
    return new Map(await Promise.all(beats))
  }

  private async isAlive(id: string): Promise<boolean> {
    const { env, signal } = this.options
    const before = await this.peek(`beat/${id}`)
    const untilMs = env.now() + leaseMs
    while (env.now() < untilMs) {
      signal?.throwIfAborted()
      const now = await this.peek(`beat/${id}`)
      if (now !== undefined && now !== before) return true
      // It may have reported an error that ends the round for this rank too.
      if (await appear(this.store, [this.key('call')], beatMs / 4)) break
    }
    const call = await this.peek('call')
    if (call !== undefined) this.take(JSON.parse(call))
    return false
  }

  /** Ends the round for all. */
  private async fail(code: 'peer.mismatch' | 'peer.timeout', text: string): Promise<never> {
    this.take(await this.put('call', { kind: 'fault', code, text }))
    // It was called in this moment, with other ranks.
    throw new PeerError(code, text)
  }

  /** What the first said. */
  private async put(name: 'call' | 'outcome', verdict: Verdict): Promise<Verdict> {
    return JSON.parse(await putFirst(this.store, this.key(name), JSON.stringify(verdict)))
  }

  private slice(): number {
    return Math.min(beatMs, Math.max(50, this.deadlineMs - this.options.env.now()))
  }

  private peek(name: string): Promise<string | undefined> {
    return peek(this.store, this.key(name))
  }

  private key(name: string): string {
    return `${this.round}/${name}`
  }
}
