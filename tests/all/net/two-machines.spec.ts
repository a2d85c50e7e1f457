import { rmSync } from 'node:fs'
import { cp, mkdir, mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, type TestContext, test } from 'vitest'
import { type TurnCredentials, turnCredentials } from '../../../node/ice/turn-credentials.ts'
import { repository } from '../../support/repository.ts'
import { cleanUp } from './clean-up.ts'
import { addresses, Networks, onlyPort, type Place } from './networks.ts'
import { type Run, says, watch } from './processes.ts'
import { secret, startTurn, turnPort } from './turn.ts'

/** Two machines with a launcher each, in network namespaces: one run of four ranks over HTTPS and WebRTC, or over a TURN server. */

const port = 29_500
/** Of the slow line to it; coturn itself takes the port behind its own too. */
const linePort = 4478

/** Line that a rank of fixtures/train.ts prints. */
interface Report {
  rank: string
  localRank: string
  nodeRank: string
  worldSize: string
  hash: string
  losses: [number, number]
  files: number
  paths: { local: string; remote: string; kind: string; roundTripMs: number }[]
  /** Its environment, as JSON. */
  environment: string
  /** Of each connection. */
  iceServers: { urls: string[]; username: string; credential: string }[][]
}

let folder: string
let removeFolder: () => void
/** Of the first test, which the others must reach too. */
let hash: string | undefined

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tabring-net-'))
  removeFolder = cleanUp(() => rmSync(folder, { recursive: true, force: true }))
  // A home each, so that machines share no certificate; the module is a user's, outside of the repository.
  for (const place of ['alpha', 'beta']) {
    await mkdir(join(folder, place))
    await cp(join(import.meta.dirname, 'fixtures', 'train.ts'), join(folder, place, 'train.ts'))
  }
})
afterAll(() => removeFolder())

/** They end with the test. */
function makeNetworks({ onTestFinished }: TestContext): Networks {
  const networks = new Networks()
  onTestFinished(() => networks.close())
  return networks
}

function launch(
  networks: Networks,
  place: Place,
  flags: readonly string[],
  env: Record<string, string>,
): Run {
  const argv = ['--nnodes=2', '--adapter=software', ...flags, 'train.ts']
  return watch(
    networks.start(
      place,
      [process.execPath, join(repository, 'bin', 'tabring.js'), 'run', ...argv],
      {
        cwd: join(folder, place),
        env: { HOME: join(folder, place), ...env },
      },
    ),
  )
}

/** Starts both launchers, the second as the first one says; resolves with both at their end. */
async function runOnBoth(
  networks: Networks,
  tabs: number,
  flags: readonly string[] = [],
  env: Record<string, string> = {},
): Promise<{ codes: (number | null)[]; stdout: string; stderr: string[] }> {
  const each = [`--nproc-per-node=${tabs}`, `--master-addr=${addresses.alpha}`]
  const first = launch(networks, 'alpha', [...each, '--node-rank=0', ...flags], env)
  const [, key, pin] = await says(
    first,
    /TABRING_ROOM_KEY=(\S+) npx tabring run .*--master-fingerprint (sha256\/\S+)/,
  )
  const joining = [...each, '--node-rank=1', `--master-fingerprint=${pin}`]
  const second = launch(networks, 'beta', joining, { TABRING_ROOM_KEY: key })
  const codes = await Promise.all([first.ended, second.ended])
  return {
    codes,
    stdout: first.text.stdout + second.text.stdout,
    stderr: [first.text.stderr, second.text.stderr],
  }
}

/** The reports by rank, after a run that ended well on all. */
function ranksOf({ codes, stdout, stderr }: Awaited<ReturnType<typeof runOnBoth>>): Report[] {
  expect(codes, stderr.join('\n')).toEqual([0, 0])
  const lines = [...stdout.matchAll(/^\[(\d+)\]: (\{.*\})$/gm)]
  const received = lines.map(([, rank, json]) => ({
    at: Number(rank),
    ...(JSON.parse(json) as Report),
  }))
  return received.sort((a, b) => a.at - b.at)
}

/** One run with all ranks of both machines, which trained the same and learned something. */
function expectOneRun(received: Report[]): void {
  expect(received.map(({ rank, localRank, nodeRank }) => [rank, localRank, nodeRank])).toEqual([
    ['0', '0', '0'],
    ['1', '1', '0'],
    ['2', '0', '1'],
    ['3', '1', '1'],
  ])
  for (const one of received) {
    expect(one.worldSize).toBe('4')
    expect(one.losses).toEqual(received[0].losses)
    expect(one.losses[1]).toBeLessThan(one.losses[0])
    expect(one.hash).toBe(hash ?? received[0].hash)
  }
  hash ??= received[0].hash
}

/** The paths between ranks of two machines, as both sides see them. */
function pathsAcross(received: Report[]): Report['paths'] {
  const across = received.flatMap(({ nodeRank, paths }) => {
    const own = nodeRank === '0' ? addresses.alpha : addresses.beta
    return paths.filter(({ local, remote }) => local !== own || remote !== own)
  })
  // Each of four ranks with both of the other machine, over several lanes where the way is long.
  expect(across.length).toBeGreaterThanOrEqual(8)
  return across
}

/** A relay address as coturn's own client asks for it, on beta. */
function allocate(networks: Networks, { username, credential }: TurnCredentials): void {
  const login = ['-u', username, '-w', credential, '-p', `${turnPort}`]
  networks.run('beta', 'turnutils_uclient', '-y', ...login, addresses.nextToAlpha)
}

/** Between the machines only what the launchers say to each other. */
const launchersAlone = onlyPort(port)

test('two machines, four ranks: one run over HTTPS, linked by WebRTC from address to address', async (context) => {
  const networks = makeNetworks(context)
  const received = ranksOf(await runOnBoth(networks, 2))
  expectOneRun(received)
  for (const { local, remote, kind } of pathsAcross(received)) {
    expect([local, remote].sort()).toEqual([addresses.alpha, addresses.beta])
    expect(kind).not.toContain('relay')
  }
  // Rank 0 of all wrote the checkpoint, not one rank of each machine.
  expect(received.map(({ files }) => files > 0)).toEqual([true, false, false, false])
})

test('one packet of fifty lost between them: the same parameters', async (context) => {
  const networks = makeNetworks(context)
  networks.setRules('accept', 'meta l4proto udp numgen random mod 50 == 0 counter drop')
  expectOneRun(ranksOf(await runOnBoth(networks, 2)))
  expect(networks.countPackets()).toBeGreaterThan(3)
})

// The last two beside each other: the second mostly waits.
test.concurrent('a firewall between, and a TURN server at the end of a slow line that loses packets: the same parameters, by relay', async (context) => {
  const networks = makeNetworks(context)
  networks.setRules('drop', ...launchersAlone)
  const turn = await startTurn(networks, folder)
  const delayMs = 20
  const argv = ['slow-line.ts', linePort, addresses.nextToAlpha, turnPort, delayMs, 0.01].map(
    String,
  )
  const line = watch(
    networks.start('between', [process.execPath, '--import', 'tsx', ...argv], {
      cwd: import.meta.dirname,
    }),
  )
  await says(line, /ready/)
  const url = `turn:${addresses.nextToAlpha}:${linePort}?transport=udp`
  const run = await runOnBoth(networks, 2, [`--ice-servers=${url}`], {
    TABRING_TURN_SECRET: secret,
  })
  const received = ranksOf(run)
  expectOneRun(received)
  for (const { kind, roundTripMs } of pathsAcross(received)) {
    expect(kind).toContain('relay')
    expect(roundTripMs).toBeGreaterThanOrEqual(2 * delayMs)
  }
  line.child.kill('SIGTERM')
  await line.ended
  const { lost } = JSON.parse(line.text.stdout.split('\n')[1])
  expect(lost).toBeGreaterThan(3)
  // Names and passwords expire after 10 minutes; only the launcher and coturn hold the secret.
  for (const { environment, iceServers } of received) {
    expect(environment).not.toContain(secret)
    for (const [server] of iceServers) {
      expect(server.username).toMatch(/^\d{10}:[0-9a-f]{16}$/)
      const endsMs = 1000 * Number(server.username.split(':')[0])
      const leftMs = endsMs - Date.now()
      expect(leftMs).toBeGreaterThan(300_000)
      expect(leftMs).toBeLessThanOrEqual(600_000)
      expect(server.credential).toMatch(/^[\w+/]{27}=$/)
    }
  }
  const names = received.map(({ iceServers }) => iceServers[0][0].username)
  expect(new Set(names).size).toBe(4)
  expect(run.stdout + run.stderr.join()).not.toContain(secret)
  // coturn took these, and takes none that have ended.
  await says(turn, new RegExp(`user <${names[0]}>.*ALLOCATE processed, success`))
  const ended = turnCredentials(secret, 'late', Date.now() - 1000)
  expect(() => allocate(networks, ended)).toThrow(/Command failed/)
  await says(turn, new RegExp(`Cannot find credentials of user <${ended.username}>`))
})

test.concurrent('a firewall between, and no TURN server or one with another secret: both launchers name the two ranks and say what helps', async (context) => {
  const url = `turn:${addresses.nextToAlpha}:${turnPort}`
  const [none, refused] = await Promise.all([
    failBehindFirewall(makeNetworks(context), []),
    (async () => {
      const networks = makeNetworks(context)
      await startTurn(networks, folder)
      const flags = [`--ice-servers=${url}`]
      return failBehindFirewall(networks, flags, { TABRING_TURN_SECRET: 'of-some-other-server' })
    })(),
  ])
  for (const received of none) {
    expect(received).toContain('a TURN server (--ice-servers for the launcher or the server')
  }
  for (const received of refused) {
    expect(received).toMatch(/No TURN server gave an address \(turn:\S+: 401 \w+\): .* its secret/)
    expect(received).not.toContain('of-some-other-server')
  }
})

/** Returns what both launchers have printed at the end of a run whose two ranks cannot reach each other. */
async function failBehindFirewall(
  networks: Networks,
  flags: readonly string[],
  env: Record<string, string> = {},
): Promise<string[]> {
  networks.setRules('drop', ...launchersAlone)
  const { codes, stderr } = await runOnBoth(networks, 1, flags, env)
  expect(codes).toEqual([1, 1])
  for (const received of stderr) {
    expect(received).toMatch(/rank [01] on (alpha|beta) failed first/)
    expect(received).toMatch(/rank [01].* link to rank [01] .*no connection: none of \d+ addresses/)
  }
  expect(networks.countPackets()).toBeGreaterThan(3)
  return stderr
}
