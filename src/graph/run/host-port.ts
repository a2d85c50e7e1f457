import type { HostArray } from '../../kernels/op.ts'
import type { Prepared } from '../plan/prepare.ts'
import type { RunOutputs } from '../plan/step-program.ts'
import type { GradientExchange } from '../trace/exchange.ts'
import type { GraphNode, GraphValue } from '../trace/value.ts'
import { type PackedBuffers, packBuffers } from './shared-buffers.ts'
import { averagedOutputs, type DevicePort, jointElements } from './step-exchange.ts'

/** A run on the CPU, after forward and backward. */
export interface HostRun {
  readonly scalars: Float32Array
  /** Results of nodes. */
  readonly values: Map<GraphValue, HostArray>
  readonly outputs: RunOutputs
  execute(nodes: readonly GraphNode[]): Promise<void>
}

/** The CPU in one step with other ranks: all lies on the host. */
export class HostPort implements DevicePort {
  readonly memory = 'host'
  readonly shared: PackedBuffers
  readonly #run: HostRun
  readonly #prepared: Prepared
  readonly #averaged: readonly string[]

  constructor(exchange: GradientExchange, prepared: Prepared, run: HostRun) {
    this.#run = run
    this.#prepared = prepared
    this.#averaged = averagedOutputs(exchange, prepared).map((i) => prepared.outputs[i].name)
    this.shared = packBuffers(prepared.sharedBuffers)
  }

  get scalars(): Float32Array {
    return this.#run.scalars
  }

  async readGradients(index: number, into: Float32Array<ArrayBuffer>): Promise<void> {
    const { elements, gradientPool } = this.#bucket(index)
    into.set(gradientPool.host(0, elements))
    if (index > 0) return
    for (const [i, name] of this.#averaged.entries())
      into[elements + i] = this.#run.outputs[name][0]
  }

  async whenBehind(): Promise<void> {
    // Backward has run.
  }

  async runJoint(index: number): Promise<Float32Array<ArrayBuffer>> {
    const { nodes, reductions } = this.#prepared.joint[index]
    await this.#run.execute(nodes)
    const own = new Float32Array(jointElements * reductions.length)
    for (const [i, { node }] of reductions.entries())
      own.set(this.#run.values.get(node.outputs[0])!, jointElements * i)
    return own
  }

  writeJoint(index: number, pair: number, joined: Float32Array): void {
    const { node } = this.#prepared.joint[index].reductions[pair]
    this.#run.values.set(node.outputs[0], Float64Array.from(joined))
  }

  endJoint(): void {
    // Outputs are taken at the end of the run.
  }

  async update(index: number, slice: Float32Array, start: number): Promise<void> {
    await this.#run.execute(this.#prepared.updates[index].update.nodes)
    slice.set(this.#bucket(index).parameterPool.host(start, slice.length) as Float32Array)
  }

  async readShared(into: Float32Array<ArrayBuffer>): Promise<void> {
    const bits = new Int32Array(into.buffer)
    for (const { buffer, start } of this.shared.parts) {
      const home = buffer.place('host')
      bits.set(home.pool.host(home.start, buffer.count, 'i32'), start)
    }
  }

  #bucket(index: number) {
    return this.#prepared.updates[index].update.bucket
  }
}
