import { expect, it } from 'vitest'
import {
  CPace,
  generatorOf,
  keyOf,
  littleEndian,
  multiplied,
} from '../../../src/peer/room/cpace.ts'

// The test vectors of draft-irtf-cfrg-cpace-21 for ristretto255 and SHA-512.

const hex = (text: string) => Uint8Array.from(Buffer.from(text, 'hex'))
const utf8 = (text: string) => new TextEncoder().encode(text)
const toHex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex')

const exchange = {
  password: utf8('Password'),
  channel: utf8('\nAinitiator\nBresponder'),
  session: hex('7e4b4791d6a8ef019b936c79fb7f2c57'),
}
const a = new CPace(
  exchange,
  littleEndian(hex('da3d23700a9e5699258aef94dc060dfda5ebb61f02a5ea77fad53f4ff0976d08')),
)
const b = new CPace(
  exchange,
  littleEndian(hex('d2316b454718c35362d83d69df6320f38578ed5984651435e2949762d900b80d')),
)

it('cpace gives the points and the key of the draft', () => {
  const { password, channel, session } = exchange
  expect(generatorOf(password, channel, session).toHex()).toBe(
    '5e25411ca1ad7c9debfd0b33ad987a95cefef2d3f15dcc8bd26415a5dfe2e15a',
  )
  expect(toHex(a.message)).toBe('383a85dd236978f17f8c8545b50dabc52a39fcdab2cf8bc531ce040ff77ca82d')
  expect(toHex(b.message)).toBe('a6206309c0e8e5f579295e35997ac4300ab3fecec3c17f7b604f3e698fa1383c')
  const shared = hex('fa1d0318864e2cacb26875f1b791c9ae83204fe8359addb53e95a2e98893853f')
  expect(toHex(keyOf(session, shared, a.message, b.message, [utf8('ADa'), utf8('ADb')]))).toBe(
    'e91ccb2c0f5e0d0993a33956e3be59754f3f2b07db57631f5394452ea2e7b4354674eb1f5686c078462bf83bec72e8743df440108e638f3526d9b90e85be096f',
  )
  const first = a.keyWith(b.message, { isInitiator: true })
  expect(b.keyWith(a.message, { isInitiator: false })).toEqual(first)
  expect(first).toEqual(keyOf(session, shared, a.message, b.message))
})

it('cpace refuses what is no point, and the neutral one', () => {
  const scalar = littleEndian(
    hex('7cd0e075fa7955ba52c02759a6c90dbbfc10e6d40aea8d283e407d88cf538a05'),
  )
  const valid = '3c6b8c4f3800e7aef6864025b4ed79bd599117e427c41bd47d93d654b4a51c'
  expect(toHex(multiplied(scalar, hex(`2c${valid}`)))).toBe(
    '7c13645fe790a468f62c39beb7388e541d8405d1ade69d1778c5fe3e7f6b600e',
  )
  expect(() => multiplied(scalar, hex(`2b${valid}`))).toThrow('is no key')
  expect(() => multiplied(scalar, new Uint8Array(32))).toThrow('is no key')
})

it('cpace gives other keys where the passwords differ', () => {
  const other = new CPace({ ...exchange, password: utf8('password') })
  expect(other.keyWith(a.message, { isInitiator: false })).not.toEqual(
    a.keyWith(other.message, { isInitiator: true }),
  )
})
