import { mkdtemp, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { addresses, type Networks } from './networks.ts'
import { type Run, says, watch } from './processes.ts'

export const turnPort = 3478

/** The TURN server's, which no tab may see. */
export const secret = 'only-launcher-and-turn-server-know'

/** coturn, where both machines reach it and each other only through it; its files are in `parent`. */
export async function startTurn(networks: Networks, parent: string): Promise<Run> {
  const folder = await mkdtemp(join(parent, 'turn-'))
  const config = join(folder, 'turnserver.conf')
  await writeFile(
    config,
    [
      `listening-port=${turnPort}`,
      `listening-ip=${addresses.nextToAlpha}`,
      `listening-ip=${addresses.nextToBeta}`,
      `relay-ip=${addresses.nextToAlpha}`,
      'realm=tabring.example',
      'use-auth-secret',
      `static-auth-secret=${secret}`,
      'log-file=stdout',
      'simple-log',
      'verbose',
      'no-cli',
      'no-tls',
      'no-dtls',
      'no-tcp-relay',
      `userdb=${join(folder, 'turn.db')}`,
      `pidfile=${join(folder, 'turn.pid')}`,
      '',
    ].join('\n'),
  )
  const turn = watch(
    networks.start('between', ['stdbuf', '-oL', 'turnserver', '-c', config], { cwd: folder }),
  )
  await says(turn, /Total General servers/)
  return turn
}
