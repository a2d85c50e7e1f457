import { control, unsigned, valueTypes } from './opcodes.ts'

export type Type = keyof typeof valueTypes

/** A local variable of a function: one of its parameters, or one that its body declares. */
export interface Local<T extends Type = Type> {
  readonly type: T
  readonly index: number
}

interface Loop {
  readonly begin: number
  end: number
}

/** Bytes of an access: its opcode, and the number of one of at most 2^21 places. */
const longestAccess = 4

/** Ways to shorten an instruction of the stream. */
const [omitted, tee, drop] = [1, 2, 3]

/**
 * The instructions of a function.
 *
 * Each result has its own local while instructions are added. `bytes` leaves a result on the stack where the next instruction is its
 * only reader, and gives one place to results that are not needed at the same time: engines take time for each local at each branch.
 */
export class Body {
  readonly #parameters: Type[] = []
  readonly #types: Type[] = []
  /** Variables: read and written in any order, and 0 at first. */
  readonly #variables = new Set<number>()
  /** Bytes, and accesses to locals as negative numbers. */
  readonly #stream: number[] = []
  /** Where loops begin and end in the stream, by their begins. */
  readonly #loops: Loop[] = []

  parameter<T extends Type>(type: T): Local<T> {
    return { type, index: this.#parameters.push(type) - 1 }
  }

  get parameters(): readonly Type[] {
    return this.#parameters
  }

  variable<T extends Type>(type: T): Local<T> {
    const local = this.#local(type)
    this.#variables.add(local.index)
    return local
  }

  /** Adds the write of what lies on the stack to a new local. */
  result<T extends Type>(type: T): Local<T> {
    const local = this.#local(type)
    this.set(local)
    return local
  }

  #local<T extends Type>(type: T): Local<T> {
    return { type, index: this.#parameters.length + this.#types.push(type) - 1 }
  }

  get({ index }: Local): void {
    this.#stream.push(-1 - 2 * index)
  }

  set({ index }: Local): void {
    this.#stream.push(-2 - 2 * index)
  }

  add(bytes: readonly number[]): void {
    for (const byte of bytes) this.#stream.push(byte)
  }

  /** Adds `inner` as the body of a loop. */
  loop(inner: () => void): void {
    const loop = { begin: this.#stream.length, end: 0 }
    this.#loops.push(loop)
    inner()
    loop.end = this.#stream.length
  }

  /** Declarations of locals and the instructions, for the code section. */
  bytes(): Uint8Array {
    const stream = this.#stream
    const forms = new Uint8Array(stream.length)
    const { places, declared } = this.#place(this.#lifetimes(forms), forms)
    const head = [
      declared.length,
      ...declared.flatMap(({ count, type }) => [...unsigned(count), valueTypes[type]]),
    ]
    const bytes = new Uint8Array(head.length + stream.length * longestAccess + 1)
    bytes.set(head)
    let end = head.length
    for (let at = 0; at < stream.length; at++) {
      const item = stream[at]
      const form = forms[at]
      if (item >= 0) bytes[end++] = item
      else if (form === drop) bytes[end++] = control.drop
      else if (form !== omitted) {
        const write = form === tee ? control.localTee : control.localSet
        bytes[end++] = item % 2 === 0 ? write : control.localGet
        let place = places[indexOf(item)]
        for (; place >= 0x80; place >>>= 7) bytes[end++] = (place & 0x7f) | 0x80
        bytes[end++] = place
      }
    }
    bytes[end++] = control.end
    return bytes.subarray(0, end)
  }

  /** Where the last read of each result is, or the end of a loop that reads it again; `forms` gets what becomes shorter. */
  #lifetimes(forms: Uint8Array): Int32Array {
    const stream = this.#stream
    const count = this.#parameters.length + this.#types.length
    const [written, reads, ends] = [0, 1, 2].map(() => new Int32Array(count))
    const open: Loop[] = []
    const around: (Loop | undefined)[] = []
    let nextLoop = 0
    for (let at = 0; at < stream.length; at++) {
      while (open.length > 0 && open.at(-1)!.end <= at) open.pop()
      while (this.#loops[nextLoop]?.begin === at) {
        const loop = this.#loops[nextLoop++]
        if (loop.end > at) open.push(loop)
      }
      const item = stream[at]
      if (item >= 0) continue
      const index = indexOf(item)
      if (item % 2 === 0) {
        if (written[index] > 0) this.#variables.add(index)
        written[index] = at + 1
        around[index] = open.at(-1)
        ends[index] = at
        continue
      }
      // Written further down, or in a loop that has ended: in no order that positions tell.
      if (written[index] === 0 || (around[index]?.end ?? at) < at) this.#variables.add(index)
      reads[index]++
      const again = open.find(({ begin }) => begin >= written[index])
      ends[index] = Math.max(ends[index], again ? again.end : at)
    }
    for (let at = 0; at < stream.length; at++) {
      const item = stream[at]
      if (item >= 0 || item % 2 !== 0) continue
      const index = indexOf(item)
      if (reads[index] === 0) forms[at] = drop
      else if (stream[at + 1] === item + 1) {
        const isOnly = reads[index] === 1 && !this.#variables.has(index)
        forms[at] = isOnly ? omitted : tee
        forms[at + 1] = omitted
      }
    }
    return ends
  }

  /** The places of locals by their numbers, and how many of each type there are. */
  #place(ends: Int32Array, forms: Uint8Array) {
    const first = this.#parameters.length
    const counts = new Map<Type, number>()
    const free: Record<Type, number[]> = { i32: [], i64: [], f32: [], f64: [], v128: [] }
    /** Of each position of the stream, one more than the last result that ends there; of each result, likewise the one before it. */
    const endingAt = new Int32Array(this.#stream.length + 1)
    const before = new Int32Array(ends.length)
    const slots = new Int32Array(ends.length).fill(-1)
    const give = (index: number): void => {
      const type = this.#types[index - first]
      const count = counts.get(type) ?? 0
      slots[index] = free[type].pop() ?? count
      if (slots[index] === count) counts.set(type, count + 1)
    }
    for (const index of this.#variables) if (index >= first) give(index)
    for (let at = 0; at < this.#stream.length; at++) {
      for (let next = endingAt[at]; next > 0; next = before[next - 1])
        free[this.#types[next - 1 - first]].push(slots[next - 1])
      const item = this.#stream[at]
      const isWrite = item < 0 && item % 2 === 0
      if (!isWrite || forms[at] === omitted || forms[at] === drop) continue
      const index = indexOf(item)
      if (index < first || this.#variables.has(index)) continue
      give(index)
      const end = Math.max(ends[index], at + 1)
      before[index] = endingAt[end]
      endingAt[end] = index + 1
    }
    const declared = [...counts].map(([type, count]) => ({ type, count }))
    const begins = new Map<Type, number>()
    let begin = first
    for (const { type, count } of declared) {
      begins.set(type, begin)
      begin += count
    }
    const places = slots.map((slot, index) =>
      index < first ? index : slot + (begins.get(this.#types[index - first]) ?? 0),
    )
    return { places, declared }
  }
}

/** The number of the local that an item of the stream reads or writes. */
const indexOf = (item: number): number => (-1 - item) >> 1
