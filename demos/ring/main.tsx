import { render } from 'preact'
import '../../src/ui/theme.css'
import './ring.css'
import { RingPage } from './page.tsx'

render(<RingPage />, document.getElementById('app')!)
