import { type CompileOptions, compileKernel } from '../../src/wasm/compile-kernel.ts'

type Words = Float32Array<ArrayBuffer> | Uint32Array<ArrayBuffer> | Int32Array<ArrayBuffer>

/** Where the first buffer lies; none begins lower. */
const firstAddress = 65_536

/** Runs a shader over buffers in the order of their bindings, and returns what they then hold. */
export function runKernel<T extends readonly Words[]>(
  wgsl: string,
  buffers: T,
  groups: readonly [number, number] = [1, 1],
  options: CompileOptions = {},
): T {
  const kernel = compileKernel(wgsl, options)
  const memory = new WebAssembly.Memory({ initial: 64 })
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(kernel.code), {
    host: { memory },
  })
  let end = firstAddress
  const addresses = buffers.map((words) => {
    const at = end
    end += Math.ceil(words.byteLength / 64) * 64
    new Uint8Array(memory.buffer).set(new Uint8Array(words.buffer), at)
    return at
  })
  const run = exports.run as (...numbers: number[]) => void
  run(0, groups[0] * groups[1], ...groups, end, ...addresses)
  return buffers.map((words, i) => {
    const make = words.constructor as new (buffer: ArrayBuffer) => Words
    return new make(memory.buffer.slice(addresses[i], addresses[i] + words.byteLength))
  }) as unknown as T
}
