import type { StepProgram } from '../../graph/plan/step-program.ts'
import { gradientWeight } from '../../graph/trace/trace.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { invariant, TabringError } from '../../util/errors.ts'
import { formatRanks } from '../../util/format-ranks.ts'
import { Sections } from '../../util/sections.ts'
import type { RingExchange } from './ring-exchange.ts'

/** Options of `DistributedDataParallel.join`. */
export interface JoinOptions {
  /** True if gradients are divided by the number of all ranks, including those without batches. False: only by those that still have batches. Default true. */
  divideByInitialWorldSize?: boolean
  /** True if all ranks throw when one of them runs out of batches. Default false. */
  throwOnEarlyTermination?: boolean
  /** False: runs the function without `join`. Default true. */
  enable?: boolean
}

/** Words that ranks send each other before a step: whether they have a batch, for which program, and the bits of what it weighs. */
const sections = new Sections({ isActive: 1, program: 1, weight: 1 })

/** Ranks with more and with fewer batches: before each step they tell who has one, and those without shadow the step of the others. */
export class RingUnevenInputs {
  /** The lowest rank that has a batch in the step under way. */
  root = 0
  readonly #group: CollectiveGroup
  readonly #exchange: RingExchange
  readonly dividesByAll: boolean
  readonly #throws: boolean

  constructor(
    group: CollectiveGroup,
    exchange: RingExchange,
    { divideByInitialWorldSize = true, throwOnEarlyTermination = false }: JoinOptions,
  ) {
    this.#group = group
    this.#exchange = exchange
    this.dividesByAll = divideByInitialWorldSize
    this.#throws = throwOnEarlyTermination
  }

  /** Returns what this rank's gradients count for in the step that it begins. errors: `graph.misuse` where ranks are to throw; the group's. */
  async begin(program: StepProgram, weight: number): Promise<number> {
    const numbers = [...this.#exchange.compiling.programs]
    const number = numbers.find(([, known]) => known === program)?.[0]
    invariant(number !== undefined, () => 'a program that updates has no number')
    const active = await this.#agree(number, weight)
    await this.#shareSettings(program, active.length, true)
    if (this.dividesByAll) return weight
    return weight / active.reduce((sum, { weight }) => sum + weight, 0)
  }

  /** Takes part in the steps of ranks that have more batches, until none has. errors: as `begin`, those of the steps. */
  async shadowOthers(): Promise<void> {
    for (;;) {
      const active = await this.#agree()
      const [first] = active
      if (!first) return
      const program = this.#exchange.compiling.programs.get(first.program)
      if (!program) throw missingProgram(first.rank)
      await this.#shareSettings(program, active.length, false)
      await program.shadow({ [gradientWeight]: 0 })
    }
  }

  /**
   * Has ranks without a batch take learning rates and their like from the lowest that has one: they update their part of the weights, and
   * their loops, which step a scheduler maybe, have ended. cost: where there are such ranks, a broadcast of a few numbers.
   */
  async #shareSettings(program: StepProgram, active: number, isActive: boolean): Promise<void> {
    if (active === this.#group.size) return
    const { consistency } = program.prepared.trace
    const values = consistency.settings()
    await this.#group.broadcast(new Uint32Array(values.buffer), this.root, { label: 'join' })
    if (!isActive) consistency.take(values)
  }

  /** Tells whether this rank has a batch; returns the ranks that have. */
  async #agree(program?: number, weight = 0) {
    const own = sections.write(new Uint32Array(sections.length), {
      isActive: program === undefined ? 0 : 1,
      program: program ?? 0,
      weight: new Uint32Array(Float32Array.of(weight).buffer),
    })
    const words = Uint32Array.from(await this.#group.allGatherU32(own, { label: 'join' }))
    const ranks = sections.rows(words).map((one, rank) => {
      const { isActive, program, weight } = sections.read(one)
      const [float] = new Float32Array(Uint32Array.of(weight).buffer)
      return { rank, isActive: isActive === 1, program, weight: float }
    })
    const active = ranks.filter(({ isActive }) => isActive)
    this.root = active[0]?.rank ?? 0
    if (this.#throws && active.length > 0 && active.length < ranks.length) {
      const ended = ranks.filter(({ isActive }) => !isActive).map(({ rank }) => rank)
      throw new TabringError(
        'graph.misuse',
        `join: ${formatRanks(ended)} ran out of batches before the others. Divide the data evenly, or omit throwOnEarlyTermination.`,
      )
    }
    return active
  }
}

const missingProgram = (rank: number) =>
  new TabringError(
    'graph.misuse',
    `join: rank ${rank} runs a program that has not been compiled on this rank. Compile it on all ranks before join.`,
  )
