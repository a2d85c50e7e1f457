import { clipped } from '../../util/clipped.ts'
import { DataError } from '../../util/errors.ts'

/**
 * Python's pickles, read without running anything: protocols 2 to 5.
 *
 * A pickle is a program for a machine with a stack and a memo. Here a class or function that it names is one of a list, or a `Refused`
 * stands in its place, and for whatever the program makes of it.
 *
 * source: Lib/pickletools.py of Python 3.13.
 */

/** A dict of any class. A list, tuple or set is an array. */
export class Dict {
  readonly entries = new Map<unknown, unknown>()
}

/** A class or function that is not read, or an object made by it: its name is all that is kept. */
export class Refused {
  constructor(readonly name: string) {}
}

/** What a pickle may call, by name: each takes the arguments and returns a value. */
export type Calls = Readonly<Record<string, (args: readonly unknown[]) => unknown>>

/** A class or function that is known: what calling it gives. */
export class Known {
  constructor(
    readonly name: string,
    readonly call: (args: readonly unknown[]) => unknown,
  ) {}
}

/** What a call, an id or a state should have been; the pickle's reader says where. */
export class Unfit extends Error {}

/** What a pickle refers to outside of itself. errors: `Unfit`. */
export interface Outside {
  /** The class, function or constant of a full name, such as `collections.OrderedDict`. */
  find(name: string): unknown
  /** What a persistent id stands for. */
  load(id: unknown): unknown
  /** Gives an object its state, where that matters. */
  build(object: unknown, state: unknown): void
}

/** A pickle's value, and the byte after its end. */
export interface Unpickled {
  readonly value: unknown
  readonly end: number
}

/** A pickle of a byte a value would fill memory otherwise. */
const maxValues = 2 ** 22
/** units: bytes. */
const maxIntBytes = 1024
/** units: characters. */
const maxNameChars = 1000

/**
 * Returns the value of the pickle that begins at byte `begin`; `where` names the file in errors.
 *
 * Classes come from `outside` alone. Shared objects stay shared, and an object may contain itself.
 * errors: `data.malformed` for a truncated pickle, unknown opcodes, an unbalanced stack, and for more than 4 million values.
 */
export function readPickle(
  bytes: Uint8Array,
  begin: number,
  where: string,
  outside: Outside,
): Unpickled {
  const machine = new Machine(bytes, begin, where, outside)
  return { value: machine.run(), end: machine.at }
}

const stop = 0x2e
/** Opcodes that protocol 2 replaced. */
const textForm = /[FILPSVdgilop]/

/** What opcodes do, under their names in pickletools. Those of the text form, which protocol 2 replaced, and of extensions are not here. */
const opcodes: Readonly<Record<number, (m: Machine) => unknown>> = {
  /* MARK */ 40: (m) => m.mark(),
  /* EMPTY_TUPLE */ 41: (m) => m.push([]),
  /* POP */ 48: (m) => m.drop(),
  /* POP_MARK */ 49: (m) => m.sinceMark(),
  /* DUP */ 50: (m) => m.push(m.top()),
  /* BINBYTES */ 66: (m) => m.push(m.take(m.count(4)).slice()),
  /* SHORT_BINBYTES */ 67: (m) => m.push(m.take(m.count(1)).slice()),
  /* BINFLOAT */ 71: (m) => m.push(m.float64()),
  /* BININT */ 74: (m) => m.push(m.int32()),
  /* BININT1 */ 75: (m) => m.push(m.count(1)),
  /* BININT2 */ 77: (m) => m.push(m.count(2)),
  /* NONE */ 78: (m) => m.push(null),
  /* BINPERSID */ 81: (m) => m.load(),
  /* REDUCE */ 82: (m) => m.call(m.popAll(2)),
  /* BINSTRING */ 84: (m) => m.push(m.text(m.count(4))),
  /* SHORT_BINSTRING */ 85: (m) => m.push(m.text(m.count(1))),
  /* BINUNICODE */ 88: (m) => m.push(m.text(m.count(4))),
  /* EMPTY_LIST */ 93: (m) => m.push([]),
  /* APPEND */ 97: (m) => m.append(m.popAll(1)),
  /* BUILD */ 98: (m) => m.build(),
  /* GLOBAL */ 99: (m) => m.find([m.line(), m.line()]),
  /* APPENDS */ 101: (m) => m.append(m.sinceMark()),
  /* BINGET */ 104: (m) => m.get(m.count(1)),
  /* LONG_BINGET */ 106: (m) => m.get(m.count(4)),
  /* BINPUT */ 113: (m) => m.put(m.count(1)),
  /* LONG_BINPUT */ 114: (m) => m.put(m.count(4)),
  /* SETITEM */ 115: (m) => m.set(m.popAll(2)),
  /* TUPLE */ 116: (m) => m.push(m.sinceMark()),
  /* SETITEMS */ 117: (m) => m.set(m.sinceMark()),
  /* EMPTY_DICT */ 125: (m) => m.push(new Dict()),
  /* PROTO */ 128: (m) => m.protocol(),
  /* NEWOBJ */ 129: (m) => m.call(m.popAll(2)),
  /* TUPLE1 */ 133: (m) => m.push(m.popAll(1)),
  /* TUPLE2 */ 134: (m) => m.push(m.popAll(2)),
  /* TUPLE3 */ 135: (m) => m.push(m.popAll(3)),
  /* NEWTRUE */ 136: (m) => m.push(true),
  /* NEWFALSE */ 137: (m) => m.push(false),
  /* LONG1 */ 138: (m) => m.push(m.long(m.count(1))),
  /* LONG4 */ 139: (m) => m.push(m.long(m.count(4))),
  /* SHORT_BINUNICODE */ 140: (m) => m.push(m.text(m.count(1))),
  /* BINUNICODE8 */ 141: (m) => m.push(m.text(m.count(8))),
  /* BINBYTES8 */ 142: (m) => m.push(m.take(m.count(8)).slice()),
  /* EMPTY_SET */ 143: (m) => m.push([]),
  /* ADDITEMS */ 144: (m) => m.append(m.sinceMark()),
  /* FROZENSET */ 145: (m) => m.push(m.sinceMark()),
  /* NEWOBJ_EX */ 146: (m) => m.call(m.popAll(3)),
  /* STACK_GLOBAL */ 147: (m) => m.find(m.popAll(2)),
  /* MEMOIZE */ 148: (m) => m.put(),
  /* FRAME */ 149: (m) => m.take(8),
  /* BYTEARRAY8 */ 150: (m) => m.push(m.take(m.count(8)).slice()),
}

class Machine {
  at: number
  readonly #bytes: Uint8Array
  readonly #view: DataView
  readonly #where: string
  readonly #outside: Outside
  readonly #stack: unknown[] = []
  readonly #marks: number[] = []
  readonly #memo = new Map<number, unknown>()
  #opAt = 0
  #values = 0

  constructor(bytes: Uint8Array, begin: number, where: string, outside: Outside) {
    this.#bytes = bytes
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    this.at = begin
    this.#where = where
    this.#outside = outside
  }

  /** Runs up to the end, and returns the value there. */
  run(): unknown {
    for (;;) {
      this.#opAt = this.at
      const code = this.count(1)
      if (code === stop) return this.pop()
      const act = opcodes[code]
      if (!act)
        throw this.malformed(
          'an opcode of protocols 2 to 5',
          textForm.test(String.fromCharCode(code))
            ? `"${String.fromCharCode(code)}" of protocol 0, Python 2's`
            : `0x${code.toString(16).padStart(2, '0')}`,
        )
      act(this)
    }
  }

  pop(): unknown {
    if (this.#stack.length <= (this.#marks.at(-1) ?? 0))
      throw this.malformed('a value on the stack', 'none')
    return this.#stack.pop()
  }

  /** Python's pickler takes a mark away by it too. */
  drop(): void {
    if (this.#stack.length === this.#marks.at(-1)) this.#marks.pop()
    else this.pop()
  }

  mark(): void {
    this.#marks.push(this.#stack.length)
  }

  push(value: unknown): void {
    if (++this.#values > maxValues)
      throw this.malformed(`at most ${maxValues} values in a pickle`, 'more')
    this.#stack.push(value)
  }

  top(): unknown {
    const value = this.pop()
    this.#stack.push(value)
    return value
  }

  popAll(count: number): unknown[] {
    if (this.#stack.length - count < (this.#marks.at(-1) ?? 0))
      throw this.malformed(`${count} values on the stack`, 'fewer')
    return this.#stack.splice(this.#stack.length - count)
  }

  sinceMark(): unknown[] {
    const mark = this.#marks.pop()
    if (mark === undefined) throw this.malformed('a mark on the stack', 'none')
    return this.#stack.splice(mark)
  }

  append(items: readonly unknown[]): void {
    const list = this.top()
    if (list instanceof Refused) return
    if (!Array.isArray(list)) throw this.malformed('a list or a set to add to', 'another value')
    for (const item of items) list.push(item)
  }

  set(items: readonly unknown[]): void {
    const dict = this.top()
    if (dict instanceof Refused) return
    if (!(dict instanceof Dict) || items.length % 2 !== 0)
      throw this.malformed('a dict and pairs to set in it', 'other values')
    for (let i = 0; i < items.length; i += 2) dict.entries.set(items[i], items[i + 1])
  }

  /** Calls a class or function of the stack; what has been refused gives what is refused. */
  call([callee, args]: readonly unknown[]): void {
    if (callee instanceof Refused) {
      this.push(new Refused(callee.name))
      return
    }
    if (!(callee instanceof Known) || !Array.isArray(args))
      throw this.malformed('a class or function and a tuple of arguments', 'other values')
    this.push(this.#ask(() => callee.call(args)))
  }

  find([module, name]: readonly unknown[]): void {
    const isName = (text: unknown) => typeof text === 'string' && text.length <= maxNameChars
    if (!isName(module) || !isName(name))
      throw this.malformed('the name of a class as two short texts', 'other values')
    this.push(this.#ask(() => this.#outside.find(`${module}.${name}`)))
  }

  load(): void {
    const id = this.pop()
    this.push(this.#ask(() => this.#outside.load(id)))
  }

  build(): void {
    const state = this.pop()
    const object = this.top()
    this.#ask(() => this.#outside.build(object, state))
  }

  put(index = this.#memo.size): void {
    this.#memo.set(index, this.top())
  }

  get(index: number): void {
    if (!this.#memo.has(index)) throw this.malformed(`entry ${index} in the memo`, 'none')
    this.push(this.#memo.get(index))
  }

  #ask<T>(act: () => T): T {
    try {
      return act()
    } catch (thrown) {
      throw thrown instanceof Unfit ? this.malformed(thrown.message, 'other values') : thrown
    }
  }

  protocol(): void {
    if (this.count(1) > 5) throw this.malformed('protocol 2 to 5', 'a later one')
  }

  int32(): number {
    return this.#view.getInt32(this.#advance(4), true)
  }

  float64(): number {
    return this.#view.getFloat64(this.#advance(8))
  }

  /** Returns where the next `length` bytes begin, and goes past them. */
  #advance(length: number): number {
    const { at } = this
    if (length > this.#bytes.length - at)
      throw this.malformed(`${length} bytes`, `${this.#bytes.length - at} (truncated)`)
    this.at = at + length
    return at
  }

  take(length: number): Uint8Array {
    const at = this.#advance(length)
    return this.#bytes.subarray(at, at + length)
  }

  /** An unsigned number of this many bytes. */
  count(width: 1 | 2 | 4 | 8): number {
    const at = this.#advance(width)
    if (width === 1) return this.#bytes[at]
    if (width === 2) return this.#view.getUint16(at, true)
    if (width === 4) return this.#view.getUint32(at, true)
    return Number(this.#view.getBigUint64(at, true))
  }

  /** Two's complement, little-endian; a number where it is exact. */
  long(length: number): number | bigint {
    if (length > maxIntBytes)
      throw this.malformed(`whole numbers of at most ${maxIntBytes} bytes`, `${length} bytes`)
    const digits = [...this.take(length)]
      .reverse()
      .map((byte) => byte.toString(16).padStart(2, '0'))
    const value = BigInt.asIntN(8 * length, BigInt(`0x0${digits.join('')}`))
    const number = Number(value)
    return Number.isSafeInteger(number) ? number : value
  }

  text(length: number): string {
    const bytes = this.take(length)
    try {
      return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
    } catch {
      throw this.malformed('text in UTF-8', 'other bytes')
    }
  }

  line(): string {
    const end = this.#bytes.indexOf(0x0a, this.at)
    if (end < 0) throw this.malformed('a line', 'none (truncated)')
    const line = this.text(end - this.at)
    this.at++
    return line
  }

  malformed(expected: string, got: string): DataError {
    return new DataError(
      'data.malformed',
      `${this.#where}: expected ${clipped(expected)} in the pickle at byte ${this.#opAt}, got ${got}. Check the file, or fetch it again.`,
    )
  }
}
