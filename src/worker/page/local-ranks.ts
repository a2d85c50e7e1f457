import { meshEdges } from '../../peer/room/edges.ts'
import { type LifeKeys, newLifeKeys } from '../../peer/room/life-keys.ts'
import { lifeOf } from '../../peer/room/lives.ts'
import type { TrainConfig } from '../../trainer/settings/config.ts'
import type { DeviceChoice } from '../../util/device.ts'
import { toHex } from '../../util/env.ts'
import { TabringError } from '../../util/errors.ts'
import { type GivenSwitches, givenSwitches } from '../../util/switches.ts'
import type { AdapterFacts, ComputeApi, ElasticPlace, RunEvent, RunResult } from '../api.ts'
import { type ComputeClient, type StartWorker, startCompute } from './client.ts'

type OnEvent = (event: RunEvent, atMs: number) => void

interface LocalRank {
  /** Its id as a member of elastic runs. */
  readonly member: string
  readonly compute: ComputeClient
  readonly opened: Promise<AdapterFacts>
  /** Name and keys in the elastic run that is on. */
  life: string
  keys: LifeKeys | undefined
}

/** The run that is on. */
interface LocalRun {
  /** Of an elastic one, which continues when a rank is lost or joins. */
  readonly key: string | null
  readonly config: TrainConfig
  readonly baseUrl: string
  readonly onEvent: OnEvent
  /** Those that train, in the order in which they came. */
  readonly ranks: LocalRank[]
  /** Likewise of all that were ever in it; null for one that was lost. */
  readonly results: (RunResult | null)[]
  /** How many have not come to their end. */
  training: number
  resolve(): void
  reject(thrown: unknown): void
}

/** Where local ranks compute, if not as the page's switches say. */
interface LocalRanksOptions {
  readonly device?: DeviceChoice
  readonly switches?: GivenSwitches
}

/**
 * Ranks of this page without a room: each a compute worker with its own device, all linked to all by ports. They share the GPU.
 *
 * One run at a time, on the first `worldSize` of them; workers and devices stay for the next one.
 */
export class LocalRanks {
  readonly #startWorker: StartWorker
  readonly #options: LocalRanksOptions
  readonly #ranks: LocalRank[] = []
  #made = 0
  #epoch = 0
  #run: LocalRun | undefined
  #isClosed = false

  constructor(startWorker: StartWorker, options: LocalRanksOptions = {}) {
    this.#startWorker = startWorker
    this.#options = options
  }

  /** Opens missing ranks up to `worldSize`, their devices in parallel; returns what they compute on. errors: `gpu.unavailable`, `worker.dead`. */
  async open(worldSize: number): Promise<AdapterFacts> {
    while (this.#ranks.length < worldSize && !this.#isClosed) this.#ranks.push(this.#start())
    const facts = await Promise.all(this.#ranks.map(({ opened }) => opened))
    return facts[0]
  }

  /**
   * Trains on the first `worldSize` ranks to the end of all of them. While an elastic run is on, `lose` and `join` change who they are, and the
   * event `roster` has their members by rank.
   *
   * order: by rank; of an elastic run the order in which they came, without those that were lost. errors: of the rank that failed first, and
   * those of `open`; the ranks can then only be closed.
   */
  async train(
    worldSize: number,
    config: TrainConfig,
    baseUrl: string,
    onEvent: OnEvent,
    isElastic = false,
  ): Promise<RunResult[]> {
    await this.open(worldSize)
    if (this.#isClosed) throw misuse('train: these local ranks have been closed. Create new ones.')
    const ranks = this.#ranks.slice(0, worldSize)
    const epoch = ++this.#epoch
    const key = isElastic ? toHex(crypto.getRandomValues(new Uint8Array(8))) : null
    if (isElastic) await Promise.all(ranks.map((rank) => enter(rank, epoch)))
    await link(epoch, ranks, meshEdges(worldSize))
    const about = { key, config, baseUrl, onEvent, ranks, results: [], training: 0 }
    try {
      const run = await new Promise<LocalRun>((resolve, reject) => {
        const run: LocalRun = { ...about, resolve: () => resolve(run), reject }
        this.#run = run
        for (const rank of ranks) this.#begin(run, epoch, rank)
      })
      await Promise.all(run.ranks.map(({ compute }) => compute.api.leave()))
      return run.results.filter((result) => result !== null)
    } finally {
      this.#run = undefined
    }
  }

  /** Ends that rank's worker in the middle of the elastic run, which the others continue. Ignored where it is not in the run. */
  lose(member: string): void {
    const run = this.#run
    const lost = run?.ranks.find((rank) => rank.member === member)
    if (!run?.key || !lost) return
    run.ranks.splice(run.ranks.indexOf(lost), 1)
    this.#ranks.splice(this.#ranks.indexOf(lost), 1)
    lost.compute.terminate()
    for (const { compute } of run.ranks) compute.api.memberIsDead(lost.life).catch(() => undefined)
  }

  /** Opens another rank, which joins the elastic run; returns its member. The others train until it is ready. errors: as `open`; `graph.misuse` where no such run is on. */
  async join(): Promise<string> {
    const run = this.#run
    if (!run?.key) throw misuse('join: no elastic run is on. Begin one with train.')
    const rank = this.#start()
    this.#ranks.push(rank)
    await rank.opened
    await rank.compute.api.prepare(run.config, run.baseUrl, () => undefined)
    if (this.#run !== run) throw misuse('join: the run has ended. Join the next one.')
    const epoch = ++this.#epoch
    await enter(rank, epoch)
    const others = [...run.ranks]
    run.ranks.push(rank)
    const at = others.length
    await link(
      epoch,
      run.ranks,
      others.map((_, other) => [other, at]),
    )
    this.#begin(run, epoch, rank, true)
    const newcomers = [{ rank: at, id: rank.life, machine }]
    for (const { compute } of others) compute.api.admit({ epoch, newcomers }).catch(() => undefined)
    return rank.member
  }

  /** The compute worker of that member, to query or to pause; undefined where it is gone. */
  at(member: string): ComputeApi | undefined {
    return this.#ranks.find((rank) => rank.member === member)?.compute.api
  }

  /** Members of the ranks that there are, in the order in which they came. */
  get members(): string[] {
    return this.#ranks.map(({ member }) => member)
  }

  /** Ends all workers at once; what is pending rejects with `worker.dead`. */
  close(): void {
    this.#isClosed = true
    for (const { compute } of this.#ranks) compute.terminate()
  }

  #start(): LocalRank {
    const { device, switches = givenSwitches() } = this.#options
    const compute = startCompute(this.#startWorker)
    const opened = compute.api.open(device, switches)
    opened.catch(() => undefined)
    return { member: `${this.#made++}`, compute, opened, life: '', keys: undefined }
  }

  /** A rank's part in the run, to its end. `joins`: the others train already. */
  #begin(run: LocalRun, epoch: number, own: LocalRank, joins = false): void {
    const { key, config, baseUrl, onEvent, ranks, results } = run
    const elastic: ElasticPlace | undefined =
      key === null
        ? undefined
        : {
            key,
            self: own.life,
            keys: own.keys!,
            ids: ranks.map((rank) => (joins && rank !== own ? null : rank.life)),
            members: ranks.map(({ member }) => member),
            machines: ranks.map(() => machine),
            former: null,
          }
    const who = elastic ? undefined : 'local'
    const membership = { epoch, rank: ranks.indexOf(own), worldSize: ranks.length, who, joins }
    const at = results.push(null) - 1
    run.training++
    own.compute.api
      .train({ ...membership, elastic }, config, baseUrl, (events) => {
        for (const { event, atMs } of events) onEvent(event, atMs)
      })
      .then(
        (result) => {
          results[at] = result
        },
        (thrown) => {
          // Lost ones have been taken out.
          if (ranks.includes(own)) run.reject(thrown)
        },
      )
      .finally(() => {
        if (--run.training === 0) run.resolve()
      })
  }
}

/** All of a page are on one. */
const machine = 'page'

async function enter(rank: LocalRank, epoch: number): Promise<void> {
  rank.keys ??= await newLifeKeys()
  rank.life = lifeOf({ id: rank.member, keyHash: rank.keys.hash }, epoch)
}

async function link(
  epoch: number,
  ranks: readonly LocalRank[],
  edges: readonly (readonly [from: number, to: number])[],
): Promise<void> {
  const apis = ranks.map(({ compute }) => compute.api)
  const linked = edges.flatMap(([from, to]) => {
    const { port1, port2 } = new MessageChannel()
    return [
      apis[from].addLink(epoch, to, { kind: 'port', port: port1 }),
      apis[to].addLink(epoch, from, { kind: 'port', port: port2 }),
    ]
  })
  await Promise.all(linked)
}

const misuse = (text: string) => new TabringError('graph.misuse', text)
