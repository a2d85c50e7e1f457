import { expect, test } from 'vitest'

test('a WebGPU adapter comes up', async () => {
  const adapter = await navigator.gpu?.requestAdapter()
  expect(adapter, 'no WebGPU adapter: GPU tests cannot run here').toBeTruthy()
  const { vendor, architecture, description } = adapter!.info
  console.log(
    `adapter: ${vendor} ${architecture} ${description}`,
    crossOriginIsolated,
    [...adapter!.features].join(),
  )
})
