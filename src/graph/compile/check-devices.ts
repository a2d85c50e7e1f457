import type { Memory } from '../memory/memory-device.ts'
import type { Prepared } from '../plan/prepare.ts'
import { storageOf } from '../trace/value.ts'

/** errors: `device.mismatch`, naming the op, the argument and both devices, for a tensor that the program cannot read where it is. */
export function checkDevices({ nodes }: Prepared, memory: Memory): void {
  for (const { op, inputs } of nodes) {
    inputs.forEach((value, argument) => {
      const { leaf } = storageOf(value)
      const tensor =
        leaf?.kind === 'parameter'
          ? leaf.parameter
          : leaf?.kind === 'buffer'
            ? leaf.buffer
            : undefined
      tensor?.requireOn(memory, `${op.name}: argument ${argument} (${tensor.title})`)
    })
  }
}
