import { openGpu } from './gpu/device.ts'
import { Runtime } from './graph/memory/runtime.ts'
import { placeOf } from './ui/page/measured-on.ts'

/** Runs `work` on a device of its own, told in words as `place`, and closes it in every case. errors: `gpu.unavailable`, `work`'s. */
export async function onOwnGpu(
  work: (runtime: Runtime, place: string) => Promise<void>,
): Promise<void> {
  const gpu = await openGpu()
  try {
    await work(new Runtime(gpu), placeOf(gpu.facts, navigator.userAgent))
  } finally {
    gpu.close()
  }
}
