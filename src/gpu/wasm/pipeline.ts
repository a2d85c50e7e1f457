import type { CompiledKernel, CompileOptions } from '../../wasm/compile-kernel.ts'
import type { WasmBuffer } from './buffer.ts'

/** errors: `gpu.compile`. */
export type CompileKernel = (
  wgsl: string,
  options: CompileOptions & { readonly isShared: boolean },
) => CompiledKernel

/**
 * Runs `count` workgroups of a dispatch from `first` on; they are numbered along x, then y, then z. Groups need nothing of each other, so
 * several threads may each run some, with scratch memory of their own.
 */
export type RunGroups = (
  first: number,
  count: number,
  groupsX: number,
  groupsY: number,
  scratch: number,
  ...addresses: number[]
) => void

/** Part of a dispatch after which other tasks may get a turn. units: ms. */
const partMs = 1
/** How much a new measurement counts. */
const newness = 0.2

let pipelines = 0

export class WasmPipeline {
  readonly id = pipelines++
  readonly label: string
  readonly run: RunGroups
  readonly code: Uint8Array<ArrayBuffer>
  readonly bindings: readonly number[]
  /** What a workgroup takes on one thread, as far as is known. units: ms. */
  groupMs = 0
  #maxGroups = 1

  constructor(label: string, run: RunGroups, { bindings, code }: CompiledKernel) {
    this.label = label
    this.run = run
    this.code = code
    this.bindings = bindings
  }

  /** Returns how many workgroups to run next: those that take about a millisecond on so many threads, but at most twice as many as before. */
  part(threads: number): number {
    const groups = Math.ceil((threads * partMs) / this.groupMs)
    const count = Math.min(this.#maxGroups, Math.max(groups, 1))
    if (this.groupMs > 0) this.#maxGroups = Math.max(this.#maxGroups, 2 * count)
    return count
  }

  /** Learns what `groups` took on one thread. */
  measured(groups: number, ms: number): void {
    const groupMs = ms / groups
    this.groupMs += (groupMs - this.groupMs) * (this.groupMs === 0 ? 1 : newness)
  }
}

/** Makes a kernel runnable. errors: what the engine throws. */
export function makePipeline(
  label: string,
  kernel: CompiledKernel,
  memory: WebAssembly.Memory,
): WasmPipeline {
  // A kernel has some KB, for which a task of the engine's threads would take longer.
  const module = new WebAssembly.Module(kernel.code)
  const { exports } = new WebAssembly.Instance(module, { host: { memory } })
  return new WasmPipeline(label, exports.run as RunGroups, kernel)
}

/** Buffers by the numbers of their bindings. */
export class WasmBindGroup {
  readonly buffers: readonly WasmBuffer[]
  readonly #addresses: number[] = []
  readonly #inOrder = new WeakMap<readonly number[], readonly number[]>()

  constructor(entries: Iterable<GPUBindGroupEntry>) {
    const buffers: WasmBuffer[] = []
    for (const { binding, resource } of entries) {
      const { buffer, offset = 0 } = resource as unknown as { buffer: WasmBuffer; offset?: number }
      buffers.push(buffer)
      this.#addresses[binding] = (buffer.address ?? 0) + offset
    }
    this.buffers = buffers
  }

  /** The addresses of these bindings. */
  addresses(bindings: readonly number[]): readonly number[] {
    let addresses = this.#inOrder.get(bindings)
    if (!addresses) {
      addresses = bindings.map((binding) => this.#addresses[binding])
      this.#inOrder.set(bindings, addresses)
    }
    return addresses
  }
}
