import { openGpu } from './gpu/device.ts'
import { Runtime } from './graph/memory/runtime.ts'
import { placeOf } from './ui/page/measured-on.ts'

/** Runs `work` on its own device, which errors call `place`, and always closes it. errors: `gpu.unavailable`, `work`'s. */
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
