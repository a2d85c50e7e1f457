import { expect, test } from 'vitest'
import { assemble, FunctionCode } from '../../../src/wasm/assemble.ts'

test('assemble gives a module whose functions have their constants, parameters and loops', () => {
  const numbers = [0, 63, 64, -64, -65, 127, 128, 2 ** 31 - 1, -(2 ** 31)]
  const constants = new FunctionCode()
  const to = constants.parameter('i32')
  for (const [i, number] of numbers.entries()) {
    const address = constants.i32('i32.add', to, constants.i32Const(16 * i))
    constants.store(address, constants.v128('i32x4.splat', constants.i32Const(number)))
  }
  const fill = new FunctionCode()
  const end = fill.parameter('i32')
  const words = fill.v128Const([1, -2, 3, -4])
  fill.loop(end, 32, (at) => fill.store(at, words))

  const memory = new WebAssembly.Memory({ initial: 1 })
  const module = new WebAssembly.Module(assemble({ constants, fill }))
  const { exports } = new WebAssembly.Instance(module, { host: { memory } })
  const functions = exports as Record<'constants' | 'fill', (number: number) => void>
  const stored = new Int32Array(memory.buffer)
  functions.constants(1024)
  for (const [i, number] of numbers.entries())
    expect([...stored.subarray(256 + 4 * i, 260 + 4 * i)]).toEqual(Array(4).fill(number))
  functions.fill(64)
  const once = [1, -2, 3, -4, 0, 0, 0, 0]
  expect([...stored.subarray(0, 20)]).toEqual([...once, ...once, 0, 0, 0, 0])
})

function wordsOf(code: FunctionCode, ...given: number[]): Int32Array {
  const memory = new WebAssembly.Memory({ initial: 1 })
  const module = new WebAssembly.Module(assemble({ run: code }))
  const { exports } = new WebAssembly.Instance(module, { host: { memory } })
  ;(exports.run as (...numbers: number[]) => void)(...given)
  return new Int32Array(memory.buffer)
}

test('assemble keeps a result until the loop that reads it has ended', () => {
  const code = new FunctionCode()
  const end = code.parameter('i32')
  const seven = code.i32Const(7)
  code.loop(end, 4, (at) => {
    code.store(at, seven)
    // A result that is needed after the last read of `seven`, in a loop that reads `seven` again.
    const eight = code.i32Const(8)
    code.store(at, code.i32('i32.add', code.i32('i32.mul', eight, eight), eight), 64)
  })
  const words = wordsOf(code, 16)
  expect([...words.subarray(0, 5)]).toEqual([7, 7, 7, 7, 0])
  expect([...words.subarray(16, 21)]).toEqual([72, 72, 72, 72, 0])
})

test('assemble keeps a result of a loop that is read behind it', () => {
  const code = new FunctionCode()
  const end = code.parameter('i32')
  let last = end
  code.loop(end, 1, (at) => {
    // Needed before the loop is left in its last turn, where `last` is not written again.
    const square = code.i32('i32.mul', at, at)
    code.store(code.i32Const(32), square)
    last = code.i32('i32.add', square, square)
    code.store(code.i32Const(36), last)
  })
  code.store(code.i32Const(0), last)
  expect(wordsOf(code, 4)[0]).toBe(18)
})

test('assemble keeps a variable at 0 until it is written, and drops what nobody reads', () => {
  const code = new FunctionCode()
  const to = code.parameter('i32')
  const written = code.local('i32')
  const first = code.i32Const(5)
  code.i32('i32.add', first, first)
  code.store(to, first)
  code.store(to, written, 4)
  code.set(written, code.i32Const(9))
  code.store(to, written, 8)
  expect([...wordsOf(code, 0).subarray(0, 3)]).toEqual([5, 0, 9])
})

test('assemble declares one local where results are needed one after the other', () => {
  const code = new FunctionCode()
  const to = code.parameter('i32')
  for (let i = 0; i < 100; i++) {
    const value = code.i32Const(i)
    code.store(to, code.i32('i32.mul', value, value), 4 * i)
  }
  const oneOfI32 = [1, 1, 0x7f]
  expect([...code.bytes().subarray(0, 3)]).toEqual(oneOfI32)
  expect([...wordsOf(code, 0).subarray(97, 101)]).toEqual([97 ** 2, 98 ** 2, 99 ** 2, 0])
})
