import { createSocket, type Socket } from 'node:dgram'

/**
 * A UDP relay that is slow and loses packets, for kernels without netem: `slow-line.ts PORT TO_HOST TO_PORT DELAY_MS LOSS`. What comes to PORT
 * is sent on to TO_HOST:TO_PORT after DELAY_MS, or, for a share LOSS of packets, nowhere; and back likewise. Each sender gets a separate port.
 *
 * When it ends by SIGTERM it prints `{"passed":…,"lost":…}`.
 */
const [port, toHost, toPort, delayMs, loss] = process.argv.slice(2)
const counts = { passed: 0, lost: 0 }
const far = new Map<string, Socket>()

/** Every packet draws; numbers of a fixed sequence, so that all runs lose the same. */
let state = 1
function draw(): number {
  state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
  return state / 2 ** 32
}

function later(pass: () => void): void {
  if (draw() < Number(loss)) {
    counts.lost++
    return
  }
  counts.passed++
  setTimeout(pass, Number(delayMs))
}

const near = createSocket('udp4')
near.on('message', (packet, from) => {
  const key = `${from.address}:${from.port}`
  let socket = far.get(key)
  if (!socket) {
    socket = createSocket('udp4')
    socket.on('message', (answer) => later(() => near.send(answer, from.port, from.address)))
    socket.on('error', () => undefined)
    far.set(key, socket)
  }
  const to = socket
  later(() => to.send(packet, Number(toPort), toHost))
})
near.bind(Number(port), () => console.log('ready'))

process.on('SIGTERM', () => {
  console.log(JSON.stringify(counts))
  process.exit(0)
})
