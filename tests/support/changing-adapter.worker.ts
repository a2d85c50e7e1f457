import '../../demos/compute.worker.ts'

/**
 * The compute worker in a browser that has another adapter once a device was lost, as a software one where the GPU's process has crashed.
 *
 * A message on the channel of the worker's name loses the first device; from then on the adapter's vendor is "another".
 */
// Vitest wraps the imports that files make late, but for those of workers, by what only its pages have; imported here the worker's are no exception.
Object.assign(self, {
  __vitest_browser_runner__: { wrapDynamicImport: (load: () => unknown) => load() },
})

let opened = 0
const { requestDevice } = GPUAdapter.prototype
GPUAdapter.prototype.requestDevice = async function (descriptor) {
  const device = await requestDevice.call(this, descriptor)
  opened++
  if (opened === 1) new BroadcastChannel(self.name).onmessage = () => device.destroy()
  return device
}

const info = Object.getOwnPropertyDescriptor(GPUAdapter.prototype, 'info')!
Object.defineProperty(GPUAdapter.prototype, 'info', {
  get(this: GPUAdapter) {
    const own: GPUAdapterInfo = info.get!.call(this)
    if (opened < 2) return own
    return new Proxy(own, {
      get: (target, field) => (field === 'vendor' ? 'another' : Reflect.get(target, field)),
    })
  },
})
