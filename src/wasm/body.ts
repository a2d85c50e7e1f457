import { control, unsigned, valueTypes } from './opcodes.ts'

export type Type = keyof typeof valueTypes

/** A local variable of a function: one of its parameters, or one that its body declares. */
export interface Local<T extends Type = Type> {
  readonly type: T
  readonly index: number
}

interface Loop {
  readonly begin: number
  /** Past its last item. */
  end: number
}

/** The code of an instruction, or a number: twice that of the local that is read, one more where it is written; below 0 where a loop ends or begins. */
type Item = number | readonly number[]

/** Ends a loop; less than that, one begins: by the number of the loop from there downwards. */
const loopEnd = -1

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
  readonly #stream: Item[] = []
  /** Bytes of the instructions without accesses. */
  #codeBytes = 0
  /** In the order of their begins. */
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

  get(local: Local): void {
    this.#stream.push(2 * local.index)
  }

  set(local: Local): void {
    this.#stream.push(2 * local.index + 1)
  }

  /** Adds code, which is kept. */
  add(code: readonly number[]): void {
    this.#stream.push(code)
    this.#codeBytes += code.length
  }

  /** Adds `inner` as the body of a loop. */
  loop(inner: () => void): void {
    const loop = { begin: this.#stream.length, end: 0 }
    this.#stream.push(loopEnd - this.#loops.push(loop))
    inner()
    loop.end = this.#stream.push(loopEnd)
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
    const longest = head.length + this.#codeBytes + stream.length * longestAccess + 1
    const bytes = new Uint8Array(longest)
    bytes.set(head)
    let end = head.length
    for (let at = 0; at < stream.length; at++) {
      const item = stream[at]
      if (typeof item !== 'number') {
        for (let i = 0; i < item.length; i++) bytes[end++] = item[i]
        continue
      }
      const form = forms[at]
      if (item < 0 || form === omitted) continue
      if (form === drop) {
        bytes[end++] = control.drop
        continue
      }
      const write = form === tee ? control.localTee : control.localSet
      bytes[end++] = item & 1 ? write : control.localGet
      let place = places[item >> 1]
      for (; place >= 0x80; place >>>= 7) bytes[end++] = (place & 0x7f) | 0x80
      bytes[end++] = place
    }
    bytes[end++] = control.end
    return bytes.subarray(0, end)
  }

  /** Where the last read of each result is, or the end of a loop that reads it again; `forms` gets what becomes shorter. */
  #lifetimes(forms: Uint8Array): Int32Array {
    const stream = this.#stream
    const variables = this.#variables
    const count = this.#parameters.length + this.#types.length
    const written = new Int32Array(count)
    const reads = new Int32Array(count)
    const ends = new Int32Array(count)
    const open: Loop[] = []
    const around: (Loop | undefined)[] = []
    for (let at = 0; at < stream.length; at++) {
      const item = stream[at]
      if (typeof item !== 'number') continue
      if (item < 0) {
        if (item === loopEnd) open.pop()
        else open.push(this.#loops[loopEnd - 1 - item])
        continue
      }
      const index = item >> 1
      if (item & 1) {
        if (written[index] > 0) variables.add(index)
        written[index] = at + 1
        around[index] = open[open.length - 1]
        ends[index] = at
        continue
      }
      // Written further down, or in a loop that has ended: in no order that positions tell.
      if (written[index] === 0 || (around[index]?.end ?? at) < at) variables.add(index)
      reads[index]++
      let end = at
      for (let i = open.length - 1; i >= 0 && open[i].begin >= written[index]; i--)
        end = open[i].end
      ends[index] = Math.max(ends[index], end)
    }
    for (let at = 0; at < stream.length; at++) {
      const item = stream[at]
      if (typeof item !== 'number' || item < 0 || !(item & 1)) continue
      const index = item >> 1
      if (reads[index] === 0) forms[at] = drop
      else if (stream[at + 1] === item - 1) {
        const isOnly = reads[index] === 1 && !variables.has(index)
        forms[at] = isOnly ? omitted : tee
        forms[at + 1] = omitted
      }
    }
    return ends
  }

  /** The places of locals by their numbers, and how many of each type there are. */
  #place(ends: Int32Array, forms: Uint8Array) {
    const stream = this.#stream
    const variables = this.#variables
    const first = this.#parameters.length
    const counts = new Map<Type, number>()
    const free: Record<Type, number[]> = { i32: [], i64: [], f32: [], f64: [], v128: [] }
    /** Of each position of the stream, one more than the last result that ends there; of each result, likewise the one before it. */
    const endingAt = new Int32Array(stream.length + 1)
    const before = new Int32Array(ends.length)
    const slots = new Int32Array(ends.length).fill(-1)
    const give = (index: number): void => {
      const type = this.#types[index - first]
      const count = counts.get(type) ?? 0
      slots[index] = free[type].pop() ?? count
      if (slots[index] === count) counts.set(type, count + 1)
    }
    for (const index of variables) if (index >= first) give(index)
    for (let at = 0; at < stream.length; at++) {
      for (let next = endingAt[at]; next > 0; next = before[next - 1])
        free[this.#types[next - 1 - first]].push(slots[next - 1])
      const item = stream[at]
      if (typeof item !== 'number' || item < 0 || !(item & 1)) continue
      const index = item >> 1
      const isKept = forms[at] !== omitted && forms[at] !== drop
      if (!isKept || index < first || variables.has(index)) continue
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
