import { seededRandom } from '../../../src/util/virtual-env.ts'

/** Choices that depend on a seed alone. */
export class Draw {
  readonly #next: () => number

  constructor(...seeds: number[]) {
    // Neighbouring seeds begin with similar draws: they are spread first, and the first draws thrown away.
    const seed = seeds.reduce((mixed, one) => Math.imul(mixed ^ one, 0x9e3779b1) + 0x7f4a7c15, 1)
    this.#next = seededRandom(seed)
    for (let i = 0; i < 4; i++) this.#next()
  }

  /** From 0 to below 1. */
  share(): number {
    return this.#next()
  }

  /** A whole number, both ends included. */
  whole(from: number, to: number): number {
    return from + Math.floor(this.#next() * (to - from + 1))
  }

  isOneIn(count: number): boolean {
    return this.#next() * count < 1
  }

  pick<T>(items: readonly T[]): T {
    return items[this.whole(0, items.length - 1)]!
  }

  shuffled<T>(items: readonly T[]): T[] {
    const out = [...items]
    for (let i = out.length - 1; i > 0; i--) {
      const j = this.whole(0, i)
      const swapped = out[i]!
      out[i] = out[j]!
      out[j] = swapped
    }
    return out
  }

  /** `count` different items, in their order. */
  some<T>(items: readonly T[], count: number): T[] {
    const taken = new Set(this.shuffled([...items.keys()]).slice(0, count))
    return items.filter((_, at) => taken.has(at))
  }
}
