import { afterEach, expect, test, vi } from 'vitest'
import { lendPage } from '../../../src/distributed/link/lend-page.ts'
import { linkMaker } from '../../../src/distributed/link/link-maker.ts'
import { initProcessGroup } from '../../../src/entries/distributed.ts'

afterEach(() => {
  vi.unstubAllGlobals()
})

/** A browser where the file of a SharedWorker answers 404. */
function withoutFile(): void {
  vi.stubGlobal('navigator', {})
  vi.stubGlobal(
    'SharedWorker',
    class extends EventTarget {
      readonly port = { postMessage: () => undefined, close: () => undefined }
      constructor() {
        super()
        queueMicrotask(() => this.dispatchEvent(new Event('error')))
      }
    },
  )
}

const init = () => initProcessGroup({ initMethod: 'broadcast:x', worldSize: 1 })

test('a missing file of the shared worker is named, and a browser without shared workers is said', async () => {
  await expect(init()).rejects.toThrow('needs a page in a browser with SharedWorker')
  withoutFile()
  await expect(init()).rejects.toMatchObject({
    code: 'config.invalid',
    message: expect.stringMatching(/its file file:.+shared-worker.ts, .+could not be loaded/),
  })
})

test('a worker hears of the file that its page lacks', async () => {
  withoutFile()
  const maker = linkMaker(lendPage())
  await expect(maker.openStore('x')).rejects.toThrow(
    'shared-worker.ts, or one that it imports, could not be loaded',
  )
  maker.close()
})
