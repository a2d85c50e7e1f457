import type { HostData } from '../../graph/memory/host-values.ts'
import type { InputTypes } from '../../graph/plan/prepare.ts'
import {
  type RunInputs,
  type RunOutputs,
  runTimesOf,
  type StepProgram,
  type StepTimes,
} from '../../graph/plan/step-program.ts'
import { randomScalarNames } from '../../graph/trace/random.ts'
import { gradientWeight } from '../../graph/trace/trace.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { countElements } from '../../util/shape.ts'
import type { Assignment } from './assignment.ts'
import { exponentsOf, type Layout } from './layout.ts'
import type { LossScale } from './loss-scale.ts'
import type { Tail } from './tail.ts'

/** The virtual workers that a rank computes. */
export interface OwnWorkers {
  readonly first: number
  readonly count: number
  /** Of each one. */
  readonly rows: number
  /** How many each rank computes. */
  readonly assignment: Pick<Assignment, 'counts' | 'firstOf' | 'rankOf' | 'take'>
}

/** Who trains together. */
export interface ExactRanks {
  readonly group: CollectiveGroup
  readonly workers: OwnWorkers
  /** Of the run, before the first step here. Default 0. */
  readonly stepsDone?: number
  /** After step number `step` the virtual workers are assigned differently. */
  readonly onAssigned?: (step: number) => void
}

/** Virtual workers to compute, and where what they give goes. */
export interface Work {
  readonly first: number
  readonly count: number
  readonly tail: Tail
  /** Sums, marks and tail. */
  readonly words: Int32Array<ArrayBuffer>
}

/** A virtual worker under way. */
interface Replay {
  /** Weight of its gradients. */
  readonly weight: number
  readonly running: Promise<RunOutputs>
}

export interface ReplaysOptions {
  readonly program: StepProgram
  readonly layout: Layout
  /** In float16. */
  readonly lossScale?: LossScale
  /** Weight of the gradients of a virtual worker: default its samples. 0: it is not computed. */
  readonly weightOf?: (inputs: RunInputs, samples: number) => number
  /** Who trains together now. */
  readonly ranks: () => ExactRanks
}

type Scalars = Readonly<Record<string, number>>

/** Virtual workers of a step, each a replay of one compiled program, which adds its gradients to the sums of `layout` as whole numbers. */
export class Replays {
  readonly #options: ReplaysOptions
  /** As the pool has them. */
  readonly #exponentWords: Int32Array<ArrayBuffer>
  /** True if the sums are those of the newest `compute`: it may have had no virtual worker. */
  #isSummed = false

  constructor(options: ReplaysOptions) {
    this.#options = options
    this.#exponentWords = new Int32Array(options.layout.exponents.elements)
  }

  /**
   * Computes the virtual workers of `work`, one after the other. Returns how long each took; 0 for none. units: ms.
   *
   * `inputs`: their rows. `exponents`: of all blocks. `times`: what forward and backward took is added there.
   */
  async compute(
    inputs: RunInputs,
    scalars: Scalars,
    exponents: Int32Array<ArrayBuffer>,
    times: { -readonly [key in keyof StepTimes]: number },
    { first, count, tail: ownTail, words }: Work,
  ): Promise<number> {
    const { layout, ranks } = this.#options
    const sums = words.subarray(0, layout.sums.elements)
    const tail = words.subarray(sums.length).fill(0)
    for (const place of layout.places)
      this.#exponentWords.set(exponentsOf(place, exponents), place.exponentsStart)
    layout.exponents.write(this.#exponentWords)
    const take = async (i: number, { weight, running }: Replay) => {
      const outputs = await running
      const { parts } = runTimesOf(outputs)
      times.forward += parts.forward
      times.backward += parts.backward
      await ownTail.write(tail, first + i, weight, outputs)
    }
    const { env } = ranks().group
    const beganMs = env.now()
    const replays: Promise<void>[] = []
    for (let i = 0; i < count; i++) {
      const rows = this.#rowsOf(i, scalars)
      if (rows === 0) break
      ownTail.writeRows(tail, first + i, rows)
      const begun = this.begin(inputs, scalars, i, replays.length === 0)
      if (!begun) continue
      const replay = take(i, begun)
      replays.push(replay)
      replay.catch(() => undefined)
      // The next one begins with the running statistics from before this one.
      if (ownTail.hasBuffers) await replay
    }
    await Promise.all(replays)
    this.#isSummed = replays.length > 0
    const tookMs = this.#isSummed ? (env.now() - beganMs) / replays.length : 0
    if (this.#isSummed) ownTail.writeTimes(tail, first, replays.length, tookMs)
    await this.readInto(sums)
    return tookMs
  }

  /** Reads the sums and marks of the newest `compute`. */
  async readInto(sums: Int32Array<ArrayBuffer>): Promise<void> {
    if (this.#isSummed) await this.#options.layout.sums.readInto(sums)
    else sums.fill(0)
  }

  /** Begins the replay of virtual worker number `i` of those whose rows `inputs` has; undefined where it has nothing that counts. */
  begin(inputs: RunInputs, scalars: Scalars, i: number, isFirst: boolean): Replay | undefined {
    const { lossScale, weightOf, program, ranks } = this.#options
    const { prepared } = program
    const { rows } = ranks().workers
    const own = this.#rowsOf(i, scalars)
    if (own === 0) return undefined
    const ownInputs = rowsOf(inputs, prepared.inputs, i)
    const weight = weightOf ? weightOf(ownInputs, own) : own
    if (weight === 0) return undefined
    const { count: _, ...others } = scalars
    const running = program.run(ownInputs, {
      ...others,
      ...(randomScalarNames.sample in scalars && {
        [randomScalarNames.sample]: scalars[randomScalarNames.sample] + i * rows,
      }),
      ...(prepared.trace.scalars.has('count') && { count: own }),
      [gradientWeight]: weight * 2 ** (lossScale?.exponent ?? 0),
      isFirstReplay: isFirst ? 1 : 0,
    })
    return { weight, running }
  }

  /** The samples of virtual worker number `i`. */
  #rowsOf(i: number, { count = 0 }: Scalars): number {
    const { rows } = this.#options.ranks().workers
    return Math.min(rows, Math.max(0, count - i * rows))
  }
}

/** The rows of virtual worker number `i`. */
function rowsOf(inputs: RunInputs, types: InputTypes, i: number): RunInputs {
  return Object.fromEntries(
    Object.entries(types).map(([name, { shape }]) => {
      const count = countElements(shape)
      const all = inputs[name] as HostData
      return [name, all.subarray(i * count, (i + 1) * count)]
    }),
  ) as RunInputs
}
