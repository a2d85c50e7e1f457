import { PeerError } from '../../util/errors.ts'
import { firstDifference } from '../../util/first-difference.ts'

/** A number of an update, by its name. */
export type NamedNumber = readonly [name: string, value: unknown]

/** Numbers that decide what a step's update does, of one group of an optimizer say. */
export interface ConsistentNumbers {
  /** Their owner: `SGD, group 0`. */
  readonly of: string
  /** Values that compiling has fixed; compared when the step is compiled. */
  readonly fixed?: string
  /** The numbers of the run under way, of which `scalars` is the block: equally many in each run. */
  readonly read: (scalars: Float32Array) => readonly NamedNumber[]
  /** Those of them that a rank without samples has from one that knows better. */
  readonly settings?: {
    read(): readonly number[]
    take(values: readonly number[]): void
  }
}

/** Contents that must be equal on all ranks: of weights, and states of optimizers that were loaded. */
export interface ConsistentContents {
  /** Hash of what this rank's program has put there by the host; 0 for nothing. `group`: of what its ranks have in common; default: all. */
  mark(group: object | undefined): number
  /** What they are, in words. */
  read(group: object | undefined): Promise<readonly string[]>
  /** Called once ranks have agreed on the marks that were asked for, or say the same though these differ: later loads leave other marks. */
  agree(): void
}

/** What `ConsistentContents.read` begins with. */
export const contentsOf = 'contents of '

/** Exchanges lists of all ranks. */
type Gather = (own: readonly string[]) => Promise<readonly (readonly string[])[]>

const none = new Float32Array()
const digits = 8
/** How many words of its numbers a rank sends the others: each digit of a hash, and its square. */
export const settingsHashWords = 2 * digits

const double = new Float64Array(1)
const halves = new Uint32Array(double.buffer)

/** 32 bits of numbers in this order. */
export function hashOf(values: Iterable<unknown>): number {
  let hash = 0x811c_9dc5
  const take = (word: number) => {
    hash = Math.imul(hash ^ word, 0x0100_0193)
    hash ^= hash >>> 15
  }
  for (const value of values) {
    double[0] = Number(value)
    take(halves[0])
    take(halves[1])
  }
  return hash >>> 0
}

/**
 * Numbers that must be equal on all ranks in each step, since each of them updates its part of the weights alone: learning rates and their like.
 *
 * A rank sends a hash in digits of 4 bits, each with its square, and all receive the sums: N times the sum of squares is the square of the sum
 * where all digits are the same, and more where not, which every rank sees. Sums of such numbers are exact in float32 for 74,000 ranks.
 * cost: `settingsHashWords` words beside the counts that the first bucket takes along, and a hash of the numbers.
 */
export class SettingsConsistency {
  readonly #all: ConsistentNumbers[] = []
  readonly #contents: ConsistentContents[] = []
  #values: unknown[] = []
  #names: (readonly [name: string, of: string])[] = []

  add(numbers: ConsistentNumbers): void {
    this.#all.push(numbers)
  }

  addContents(contents: ConsistentContents): void {
    this.#contents.push(contents)
  }

  /** Values that compiling has fixed, in order. */
  get fixed(): string[] {
    return this.#all.flatMap(({ of, fixed }) => (fixed === undefined ? [] : [`${of}: ${fixed}`]))
  }

  /** The same, and the settings as they are, in words. */
  get lines(): string[] {
    const settings = this.#all.flatMap(({ of, settings, read }) =>
      settings
        ? [
            `${of}: ${read(none)
              .map(([name, value]) => `${name} ${value}`)
              .join(', ')}`,
          ]
        : [],
    )
    return [...this.fixed, ...settings]
  }

  /** The settings as they are, one after the other. */
  settings(): Float64Array<ArrayBuffer> {
    return Float64Array.from(this.#all.flatMap(({ settings }) => settings?.read() ?? []))
  }

  /** Sets them to another rank's. */
  take(values: Float64Array): void {
    let at = 0
    for (const { settings } of this.#all) {
      if (!settings) continue
      const { length } = settings.read()
      settings.take([...values.subarray(at, at + length)])
      at += length
    }
  }

  /** Takes the numbers of the run that begins. */
  note(scalars: Float32Array): void {
    const values: unknown[] = []
    const names: (readonly [string, string])[] = []
    for (const { of, read } of this.#all) {
      for (const [name, value] of read(scalars)) {
        values.push(value)
        names.push([name, of])
      }
    }
    this.#values = values
    this.#names = names
  }

  /** The run's numbers with their names, for the error when they differ. */
  numbers(): () => readonly string[] {
    const [values, names] = [this.#values, this.#names]
    return () => names.map(([name, of], i) => `${name} ${values[i]} (${of})`)
  }

  /**
   * Returns what to call where the words of a run's ranks differ: it compares what they stand for. Contents are read then alone, before
   * anything is updated. errors: `peer.mismatch`, naming the first difference.
   */
  comparison(group?: object) {
    const numbers = this.numbers()
    return async (gather: Gather, ranks?: readonly number[], others: string[] = []) => {
      const contents: string[] = []
      // One after the other: reading may be an exchange.
      for (const one of this.#contents) contents.push(...(await one.read(group)))
      const received = await gather([...numbers(), ...others, ...contents])
      const difference = firstDifference(received, 'nothing', ranks)
      if (difference) throw settingsError(difference.text)
    }
  }

  /** Notes that all ranks, of every group, have agreed on what the run began with. */
  agreed(): void {
    for (const one of this.#contents) one.agree()
  }

  /** Words that this rank sends of the run's numbers, and of contents that it has in common with the ranks of `group`; default: all. */
  words(group?: object): number[] {
    const hash = hashOf([...this.#values, ...this.#contents.map((one) => one.mark(group))])
    const own = Array.from({ length: digits }, (_, i) => (hash >>> (4 * i)) & 15)
    return own.flatMap((digit) => [digit, digit * digit])
  }
}

/** Returns whether the sums of `size` ranks' words show that they were not the same. */
export function areUnlike(sums: ArrayLike<number>, size: number): boolean {
  for (let i = 0; i < settingsHashWords; i += 2) {
    if (sums[i] * sums[i] !== size * sums[i + 1]) return true
  }
  return false
}

function settingsError(difference: string): PeerError {
  const [what, remedy] = difference.startsWith(contentsOf)
    ? [
        'weights or the optimizer’s state',
        'Some ranks loaded or assigned them alone, or other ones, since the model was shared. Load the same on all ranks, or load on one and broadcast to the others: weights by broadcast, a stateDict() of the optimizer by broadcastObjectList before each rank loads it.',
      ]
    : [
        "the optimizer's settings",
        'Set the same values on all ranks; a scheduler that reads a loss needs the same loss on all ranks, for example their mean.',
      ]
  return new PeerError(
    'peer.mismatch',
    `optimizer.step: ranks disagree about ${what}: ${difference}. The ranks would train different models, so nothing was updated. ${remedy}`,
  )
}
