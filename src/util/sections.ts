type Block = Float32Array<ArrayBuffer> | Int32Array<ArrayBuffer> | Uint32Array<ArrayBuffer>

/** Named sections of a block of numbers, one behind the other: what ranks send beside gradients, in one order on all of them. */
export class Sections<Name extends string> {
  /** Of a block. */
  readonly length: number
  readonly #lengths: ReadonlyMap<string, number>
  readonly #starts = new Map<string, number>()

  /** `lengths`: by section, in order. */
  constructor(lengths: Readonly<Record<Name, number>>) {
    this.#lengths = new Map(Object.entries<number>(lengths))
    let length = 0
    for (const [name, own] of this.#lengths) {
      this.#starts.set(name, length)
      length += own
    }
    this.length = length
  }

  /** A view of one section of a block. */
  of<B extends Block>(block: B, name: Name): B {
    const start = this.#starts.get(name)!
    return block.subarray(start, start + this.#lengths.get(name)!) as B
  }

  /** The first number of each section. */
  read(block: ArrayLike<number>): Record<Name, number> {
    const all = [...this.#starts].map(([name, start]) => [name, block[start]])
    return Object.fromEntries(all) as Record<Name, number>
  }

  /** Puts numbers in their sections of a block, and leaves the others. Returns the block. */
  write<B extends Block>(
    block: B,
    values: { readonly [Own in Name]?: number | ArrayLike<number> },
  ): B {
    for (const [name, start] of this.#starts) {
      const own = values[name as Name]
      if (typeof own === 'number') block[start] = own
      else if (own) block.set(own, start)
    }
    return block
  }

  /** A view of block number `i` of those that lie one behind the other. */
  row<B extends Block>(blocks: B, i: number): B {
    return blocks.subarray(this.length * i, this.length * (i + 1)) as B
  }

  /** Views of the blocks that lie one behind the other. */
  rows<B extends Block>(blocks: B): B[] {
    return Array.from({ length: blocks.length / this.length }, (_, i) => this.row(blocks, i))
  }
}
