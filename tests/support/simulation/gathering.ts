import { type Gathered, gatherRanks } from '../../../src/distributed/rendezvous/gather-ranks.ts'
import { HashStore } from '../../../src/peer/store/hash-store.ts'
import type { Store } from '../../../src/peer/store/store.ts'
import { messageOf, PeerError } from '../../../src/util/errors.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { Draw } from './draw.ts'

// Ranks that find one another by a store, in worlds that one number decides: who comes when, how slow the store is, and what breaks.

export const joinTimeoutMs = 60_000
/** Beyond its time a join may take a lease, an answer's time, and what the store is slow; see gather-ranks.ts. */
const patienceMs = 45_000

export const faultKinds = [
  'crash',
  'freeze',
  'lose-store',
  'abort',
  'twin',
  'stranger',
  'late',
] as const
export type FaultKind = (typeof faultKinds)[number]

interface Fault {
  kind: FaultKind
  /** Whom it befalls. */
  rank: number
  /** At which of its calls to the store, or after how many ms. */
  at: number
}

/** One tab's way to the store: in order, each way with a delay; it may break. */
export class Tab {
  calls = 0
  isDead = false
  frozenUntilMs = 0
  hasInjected = false
  readonly abort = new AbortController()
  private lastMs = 0

  constructor(
    readonly env: VirtualEnv,
    private readonly delayMs: () => number,
    private readonly fault: Fault | undefined,
  ) {}

  /** The store as this tab reaches it. */
  over(store: Store): Store {
    return new Proxy(store, {
      get: (target, name) => {
        const value = Reflect.get(target, name)
        if (typeof value !== 'function') return value
        return (...given: unknown[]) => this.call(() => value.apply(target, given))
      },
    })
  }

  private async call<T>(run: () => Promise<T>): Promise<T> {
    this.calls += 1
    if (this.fault && this.calls === this.fault.at) this.inject(this.fault)
    await this.travel()
    const outcome = await run().then(
      (value) => ({ value }),
      (error: unknown) => ({ error }),
    )
    await this.travel()
    if ('error' in outcome) throw outcome.error
    return outcome.value
  }

  private inject({ kind }: Fault): void {
    this.hasInjected = true
    if (kind === 'crash') this.isDead = true
    if (kind === 'freeze') this.frozenUntilMs = this.env.now() + 20_000
    if (kind === 'abort') this.abort.abort(new Error('the user left'))
    if (kind === 'lose-store') this.isStoreLost = true
  }
  private isStoreLost = false

  private travel(): Promise<void> {
    const { env } = this
    const atMs = Math.max(this.lastMs, env.now() + this.delayMs(), this.frozenUntilMs)
    this.lastMs = atMs
    return new Promise((resolve, reject) => {
      env.after(atMs - env.now(), () => {
        if (this.isDead) return
        if (this.isStoreLost) reject(new PeerError('signal.lost', 'store: the connection ended'))
        else resolve()
      })
    })
  }

  /** Its clock: a tab that is dead hears no timer. */
  get clock(): VirtualEnv {
    const own: VirtualEnv = Object.create(this.env)
    own.after = (delayMs, run) =>
      this.env.after(Math.max(delayMs, this.frozenUntilMs - this.env.now()), () => {
        if (!this.isDead) run()
      })
    return own
  }
}

interface Scenario {
  size: number
  isNumbered: boolean
  slowMs: number
  comesWithinMs: number
  fault: Fault | undefined
}

function drawScenario(seed: number, redrawn: number): Scenario {
  const draw = new Draw(seed)
  const size = draw.isOneIn(12) ? draw.whole(17, 64) : draw.whole(1, 16)
  const scenario = {
    size,
    isNumbered: !draw.isOneIn(3),
    slowMs: draw.pick([0, 2, 40, 200]),
    comesWithinMs: draw.pick([0, 500, 5000]),
  }
  if (draw.isOneIn(4)) return { ...scenario, fault: undefined }
  const again = new Draw(seed, 1 + redrawn)
  const kind = again.pick(faultKinds)
  return { ...scenario, fault: { kind, rank: again.whole(0, size - 1), at: again.whole(1, 24) } }
}

type Outcome = { gathered: Gathered } | { error: unknown }

class World {
  readonly env: VirtualEnv
  readonly store: HashStore
  readonly outcomes = new Map<Tab, Outcome>()
  private readonly draw: Draw

  constructor(
    seed: number,
    private readonly scenario: Scenario,
  ) {
    this.env = new VirtualEnv(seed)
    this.store = new HashStore({ env: this.env })
    this.draw = new Draw(seed, 99)
  }

  join(rank: number | undefined, name: string, fault?: Fault, worldSize = this.scenario.size): Tab {
    const { slowMs } = this.scenario
    const tab = new Tab(this.env, () => this.draw.share() * slowMs, fault)
    gatherRanks({
      store: tab.over(this.store),
      env: tab.clock,
      rank,
      terms: { worldSize, backend: 'auto', topology: 'auto', relay: 'off' },
      place: { pageTag: '', hostTag: '', nodeTag: '', hasWebRtc: true, hasRelay: false, name },
      joinTimeoutMs,
      signal: tab.abort.signal,
    }).then(
      (gathered) => this.outcomes.set(tab, { gathered }),
      (error) => this.outcomes.set(tab, { error }),
    )
    return tab
  }

  wait(ms: number): Promise<void> {
    return this.env.advance(ms)
  }
}

/** Runs a world to its end; returns whether its fault was injected, and violations. */
async function simulate(seed: number, redrawn: number) {
  const scenario = drawScenario(seed, redrawn)
  const { size, isNumbered, comesWithinMs, fault } = scenario
  const world = new World(seed, scenario)
  const draw = new Draw(seed, 7)
  const order = draw.shuffled(Array.from({ length: size }, (_, rank) => rank))
  const numberOf = (rank: number) => (isNumbered ? rank : undefined)
  const tabs: Tab[] = []
  let hasInjected = fault === undefined
  let stranger: Tab | undefined
  for (const rank of order) {
    await world.wait((draw.share() * comesWithinMs) / size)
    const isMeant = fault?.rank === rank
    if (isMeant && fault.kind === 'late') {
      hasInjected = true
      await world.wait(20_000)
    }
    tabs.push(world.join(numberOf(rank), `tab ${rank}`, isMeant ? fault : undefined))
    if (isMeant && (fault.kind === 'twin' || fault.kind === 'stranger')) {
      hasInjected = true
      stranger =
        fault.kind === 'twin'
          ? world.join(numberOf(rank), 'twin')
          : world.join(numberOf(rank), 'stranger', undefined, size + 1)
    }
  }
  await world.wait(30_000)
  const broken = tabs.find((tab) => tab.hasInjected)
  hasInjected ||= broken !== undefined
  // Somebody opens the tab again, as a launcher or a user does.
  const replaces = broken && fault && ['crash', 'abort', 'lose-store'].includes(fault.kind)
  const second = replaces ? world.join(numberOf(fault.rank), 'again') : undefined
  await world.wait(joinTimeoutMs + patienceMs + comesWithinMs)

  const violations: string[] = []
  let lateRounds = 0
  const all = [...tabs, ...(second ? [second] : []), ...(stranger ? [stranger] : [])]
  for (const tab of all)
    if (!tab.isDead && !world.outcomes.has(tab)) violations.push('a join has not ended')
  const formed = [...world.outcomes.values()].flatMap((one) =>
    'gathered' in one ? [one.gathered] : [],
  )
  const errors = [...world.outcomes.values()].flatMap((one) => ('error' in one ? [one.error] : []))
  for (const { members, rank, round } of formed) {
    if (members.length !== size) violations.push(`${members.length} members of ${size}`)
    members.forEach((member, at) => {
      if (member.rank !== at) violations.push(`rank ${member.rank} at place ${at}`)
    })
    const others = formed.filter((one) => one.round === round)
    if (others.some((one) => JSON.stringify(one.members) !== JSON.stringify(members)))
      violations.push(`round ${round} was formed twice, with other members`)
    if (others.filter((one) => one.rank === rank).length !== 1)
      violations.push(`rank ${rank} twice in round ${round}`)
    if (round > 0) lateRounds += 1
  }
  for (const error of errors) {
    const isOwn = error instanceof PeerError || messageOf(error) === 'the user left'
    if (!isOwn) violations.push(`not an error of ours: ${messageOf(error)}`)
  }
  const isWhole = fault === undefined || fault.kind === 'late' || fault.kind === 'freeze'
  if (isWhole && formed.length !== size)
    violations.push(`${formed.length} of ${size} joined: ${errors.map(messageOf).join('; ')}`)
  // Where a rank went before the group was formed, the one in its place makes it whole.
  const brokenEnd = broken && world.outcomes.get(broken)
  const wentEarly = broken && !(brokenEnd && 'gathered' in brokenEnd)
  if (second && wentEarly) {
    const living = [...tabs.filter((tab) => tab !== broken), second]
    const out = living.filter((tab) => !('gathered' in (world.outcomes.get(tab) ?? {})))
    const hasFormedWithout = formed.some(({ members }) =>
      members.some(({ name }) => name === `tab ${fault?.rank}`),
    )
    if (out.length > 0 && !hasFormedWithout)
      violations.push(
        `${out.length} did not join although all ${size} were there: ${errors.map(messageOf).join('; ')}`,
      )
  }
  return {
    violations,
    hasInjected,
    fault,
    formed: formed.length,
    failed: errors.length,
    lateRounds,
  }
}

/** Runs a seed's world, in which its fault was injected. errors: what was violated, and the command that replays it. */
export async function checkGathering(seed: number, spec: string) {
  for (let redrawn = 0; redrawn < 40; redrawn++) {
    const outcome = await simulate(seed, redrawn)
    if (outcome.violations.length > 0) {
      const what = outcome.fault ? ` (${JSON.stringify(outcome.fault)})` : ''
      throw new Error(
        `seed ${seed}${what}: ${outcome.violations.slice(0, 4).join('\n  ')}\nReplay it:\n  TABRING_SEED=${seed} npm test -- ${spec}`,
      )
    }
    if (outcome.hasInjected) return outcome
  }
  throw new Error(`seed ${seed}: none of the faults drawn for it has struck`)
}
