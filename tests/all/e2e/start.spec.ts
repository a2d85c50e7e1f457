import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { smallFolder } from '../../support/idx-files.ts'
import { launchBrowser } from '../../support/launch-browser.ts'
import { repository } from '../../support/repository.ts'

const children: ChildProcess[] = []
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL')
})

/** `npm start -- …`, and what it prints. */
function npmStart(...flags: string[]) {
  // The same program, without npm and tsx's own processes between: a signal reaches it alone.
  const child = spawn(process.execPath, ['--import', 'tsx', 'node/start.ts', ...flags], {
    cwd: repository,
  })
  children.push(child)
  let text = ''
  const seen = (wanted: string) =>
    new Promise<string>((resolve, reject) => {
      const look = () => text.includes(wanted) && resolve(text)
      child.stdout.on('data', look)
      child.once('exit', () => reject(new Error(`ended without "${wanted}": ${text}`)))
      look()
    })
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (bytes) => {
      text += bytes
    })
  }
  return { child, seen, text: () => text }
}

describe('npm start', () => {
  it('builds, serves, prints the address, and ends on Ctrl-C', async () => {
    const { child, seen } = npmStart('--port', '0')
    const text = await seen('Ctrl-C')
    const url = text.match(/http:\/\/localhost:\d+\//)?.[0]
    const page = await fetch(url!.replace('localhost', '127.0.0.1'))
    expect(page.status).toBe(200)
    expect(await page.text()).toContain('<title>Tabring</title>')
    expect(text).toContain('npm start -- --host')
    const exited = once(child, 'exit')
    child.kill('SIGINT')
    expect((await exited)[0]).toBe(0)
  })

  it('--host: HTTPS for other machines, their addresses and a word about the certificate', async () => {
    const text = await npmStart('--host', '--port', '0').seen('Ctrl-C')
    expect(text).toMatch(/Tabring is at {2}https:\/\/localhost:\d+\//)
    expect(text).toMatch(/on the network https:\/\/\d+\.\d+\.\d+\.\d+:\d+\//)
    expect(text).toContain('The certificate is self-signed')
    expect(text).not.toContain('npm start -- --host')
  })

  it('a port in use: one clear line, and not 0', async () => {
    const other = createServer().listen(0, '127.0.0.1')
    await once(other, 'listening')
    const { port } = other.address() as AddressInfo
    const { child, text } = npmStart('--port', String(port))
    const [code] = await once(child, 'exit')
    other.close()
    expect(code).toBe(1)
    expect(text()).toContain(`serve: port ${port} is in use. Choose another --port.`)
  })

  it('--port: an invalid port is refused', async () => {
    const { child, text } = npmStart('--port', '99999')
    const [code] = await once(child, 'exit')
    expect(code).toBe(1)
    expect(text()).toContain('start: --port: expected a whole number from 0 to 65535')
  })

  it('--data: the folder is checked, served and printed', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'tabring-start-'))
    try {
      const empty = npmStart('--port', '0', '--data', folder)
      expect((await once(empty.child, 'exit'))[0]).toBe(1)
      expect(empty.text()).toContain('train-images-idx3-ubyte')
      const none = npmStart('--port', '0', '--data', join(folder, 'none'))
      expect((await once(none.child, 'exit'))[0]).toBe(1)
      expect(none.text()).toContain('none does not exist')

      const files = smallFolder()
      for (const [name, bytes] of Object.entries(files)) await writeFile(join(folder, name), bytes)
      const text = await npmStart('--port', '0', '--data', folder).seen('Ctrl-C')
      expect(text).toContain(folder)
      const url = text.match(/http:\/\/localhost:\d+\/\?data=\/data\//)?.[0]
      const base = url!.replace('localhost', '127.0.0.1')
      const file = await fetch(new URL('/data/test-labels-idx1-ubyte', base))
      const expected = files['test-labels-idx1-ubyte']
      expect(new Uint8Array(await file.arrayBuffer())).toEqual(expected)
    } finally {
      await rm(folder, { recursive: true })
    }
  })

  it("--visible-devices: in this machine's address, and a wrong list refused", async () => {
    const text = await npmStart('--port', '0', '--visible-devices', '0,1').seen('Ctrl-C')
    const address = new URL(text.match(/http:\/\/localhost\S+/)![0])
    expect(address.searchParams.get('launcher')).toBe('{"device":"webgpu","visibleDevices":"0,1"}')
    const { child, text: said } = npmStart('--visible-devices', '1,1')
    expect((await once(child, 'exit'))[0]).toBe(1)
    expect(said()).toContain('visibleDevices must be distinct device numbers')
  })

  it('--device: in the address too', async () => {
    const text = await npmStart('--port', '0', '--device', 'cpu').seen('Ctrl-C')
    const address = new URL(text.match(/http:\/\/localhost\S+/)![0])
    expect(address.searchParams.get('launcher')).toBe('{"device":"cpu"}')
    const { child, text: said } = npmStart('--device', 'gpu')
    expect((await once(child, 'exit'))[0]).toBe(1)
    expect(said()).toContain('start: --device: expected auto, webgpu, cpu or reference')
    const browser = await launchBrowser()
    try {
      const page = await browser.newPage()
      const received: string[] = []
      page.on('console', (message) => received.push(message.text()))
      await page.goto(address.href)
      await page.getByText('CPU in WebAssembly').first().waitFor()
      expect(received.filter((line) => line.includes('switches'))).toEqual([
        'tabring switches: device=cpu (launcher)',
      ])
    } finally {
      await browser.close()
    }
  })

  it('--allow-origin: origins are printed, and an invalid one is refused', async () => {
    const flags = ['--allow-origin', 'https://Tabs.example/x', '--allow-origin', 'http://two:81']
    const text = await npmStart('--port', '0', ...flags).seen('Ctrl-C')
    expect(text).toContain('https://tabs.example/')
    expect(text).toContain('http://two:81/')
    const { child, text: said } = npmStart('--allow-origin', 'tabs.example')
    expect((await once(child, 'exit'))[0]).toBe(1)
    expect(said()).toContain(
      'start: --allow-origin: expected an address like https://name.example:8443',
    )
  })
})
