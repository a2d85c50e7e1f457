import { chunksOf } from '../../src/peer/algorithms/plan.ts'

/**
 * The sum of all ranks' arrays by a plain loop, added in the order that docs/how-it-works/collectives.md states, in float32.
 *
 * order: chunk c is rank c+1, c+2, ..., c; with `machines` those of each other machine among themselves first, then the owner's one by one.
 */
export function plainSum(
  inputs: readonly Float32Array[],
  machines: readonly number[] | undefined,
): Float32Array {
  const size = inputs.length
  const sum = new Float32Array(inputs[0].length)
  const total = (parts: readonly number[]) => parts.reduce((a, b) => Math.fround(a + b))
  for (const [owner, { start, end }] of chunksOf(sum.length, size).entries()) {
    const order = inputs.map((_, hop) => (owner + 1 + hop) % size)
    for (let i = start; i < end; i++) {
      const part = (rank: number) => inputs[rank][i]
      if (!machines) {
        sum[i] = total(order.map(part))
        continue
      }
      const own = order.filter((rank) => machines[rank] === machines[owner])
      const others = [...new Set(order.map((rank) => machines[rank]))]
        .filter((machine) => machine !== machines[owner])
        .map((machine) => total(order.filter((rank) => machines[rank] === machine).map(part)))
      sum[i] = total([...others, ...own.map(part)])
    }
  }
  return sum
}

/** Elements whose bits differ. */
export function countDifferent(a: Float32Array, b: Float32Array): number {
  const bitsOf = ({ buffer, byteOffset, length }: Float32Array) =>
    new Uint32Array(buffer, byteOffset, length)
  const others = bitsOf(b)
  return bitsOf(a).reduce((count, bits, i) => count + Number(bits !== others[i]), 0)
}
