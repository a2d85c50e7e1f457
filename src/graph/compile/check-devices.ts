import type { Memory } from '../memory/memory-device.ts'
import type { Prepared } from '../plan/prepare.ts'
import { storedIn } from '../trace/value.ts'

/** errors: `device.mismatch`, naming the op, the argument and both devices, for a tensor that the program cannot read where it is. */
export function checkDevices({ nodes }: Prepared, memory: Memory): void {
  for (const { op, inputs } of nodes) {
    inputs.forEach((value, argument) => {
      const tensor = storedIn(value)
      tensor?.requireOn(memory, `${op.name}: argument ${argument} (${tensor.title})`)
    })
  }
}
